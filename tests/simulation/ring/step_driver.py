"""Drives a worker's step engine on the virtual clock, where a thread does in a real process; and what else has threads
there: copies beside the steps, and the preparation of grammars."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from signalbox.grammar.form import Form
from signalbox.protocol.step_limits import STEP_TIMEOUT_S
from tests.simulation.block_rules import poison_targets
from tests.simulation.ring.automaton import RuleAutomaton, read_rule
from tests.simulation.ring.clock import Process, current_process
from tests.simulation.ring.model import AheadModel, Model, PipelineModel, ProcessCrashedError
from tests.simulation.ring.rules import note
from worker_svc.core.requests.masks import MaskJob
from worker_svc.core.step import Failure, RequestRef, SideCopies
from worker_svc.core.worker_core import WorkerCore
from worker_svc.grammar.preparation import GrammarPreparation, Prepared, _Wanted
from worker_svc.steps.engine import Disk, Listeners, StepEngine, StepTotals, Surroundings
from worker_svc.steps.inbox import StepInbox
from worker_svc.steps.items import ArrivedRequest, ArrivedStep, CopiesFailed, Item, LinkClosed

CRASHES_AT_ONCE = 0.5
"""Share of the steps that crash when they begin, of those that crash at all; the others do at their end."""
NEVER_S = 1e5
"""How long a step takes that never ends."""


class StepDriver(StepInbox):
    """Stands in for `worker_svc.steps.loop.StepLoop`: the same engine, and steps that take virtual time."""

    def __init__(
        self,
        core: WorkerCore,
        runner: Model | AheadModel | PipelineModel,
        on_result: Callable[[Any], None],
        on_refused: Callable[[str], None],
        spans: Any = None,
        preparation: Any = None,
        on_grammar_result: Callable[[Any], None] = lambda result: None,
        on_fence_ended: Callable[[int, Failure | None], None] = lambda fence, failure: None,
        most_tokens: int = 8192,
        disk: Disk | None = None,
        mask_threads: int = 0,
        step_timeout_s: float = STEP_TIMEOUT_S,
        **others: Any,
    ) -> None:
        process = self.process = current_process()
        self._clock = process.loop.time
        self._items: deque[Item] = deque()
        self._news = asyncio.Event()
        super().__init__(self._post, self._clock)
        node = self.node = process.node
        self.core, self.runner = core, runner
        self.copier = SideCopier(node, runner, process, self._copies_ended)
        self._on_fence_ended = on_fence_ended
        around = Surroundings(self._clock, self._post, self.copier, disk, SlowMasks(node, process))
        listeners = Listeners(
            on_result=on_result, on_refused=on_refused, on_grammar_result=on_grammar_result, **others
        )
        self.engine = CheckedEngine(
            core,
            runner,
            around,
            listeners,
            None,
            Preparation(node, process),
            most_tokens,
            step_timeout_s,
        )
        self.failure: BaseException | None = None
        self._due = 0.0
        """When the oldest step in flight is done."""

    @property
    def totals(self) -> StepTotals:
        """All steps so far."""
        return self.engine.totals

    @property
    def step_age_s(self) -> float:
        """As `StepLoop.step_age_s`."""
        return self.engine.step_age_s

    @property
    def is_alone(self) -> bool:
        """As `StepLoop.is_alone`."""
        return self.engine.is_alone

    def start(self) -> None:
        """Begins with what arrives."""
        self._task = self.process.spawn(self._run())

    def stop(self, timeout_s: float) -> None:
        """Runs what has arrived, at once."""
        if self.failure is None:
            self._task.cancel()
            try:
                self._run_all()
            except ProcessCrashedError as error:
                self._crash(error)

    def _run_all(self) -> None:
        while self.engine.is_full:  # what was being waited for
            self.engine.finish()
        while self._items:
            item = self._items.popleft()
            while self.engine.must_finish_before(item):
                self.engine.finish()
            self.engine.take(item)
            while self.engine.is_full:
                self.engine.finish()
        self.engine.finish_all()

    def _crash(self, error: ProcessCrashedError) -> None:
        self.node.ring.num_poisoned += 1
        self.node.crash(f"crashed in a step: {error}")

    def _post(self, item: Item) -> None:
        self._items.append(item)
        self._news.set()

    async def _run(self) -> None:
        try:
            while True:
                await self._take(await self._next())
        except ProcessCrashedError as error:
            self._crash(error)
            await asyncio.Event().wait()
        except Exception as error:
            self.failure = error

    async def _take(self, item: Item) -> None:
        engine = self.engine
        try:
            while engine.must_finish_before(item):
                await self._finish()
        except asyncio.CancelledError:  # `stop` goes on
            self._items.appendleft(item)
            raise
        if isinstance(item, Future | LinkClosed):
            while self.copier.age_s or self.copier.has_open:
                await asyncio.sleep(0.005)
        engine.take(item)
        if engine.num_in_flight == 1 and self._due <= self._clock():
            self._due = self._clock() + self._duration_s()
        while engine.is_full:
            await self._finish()

    async def _next(self) -> Item:
        """What comes next; the steps in flight that are done meanwhile are finished."""
        while not self._items:
            if (own := self.engine.author()) is not None:
                return own
            self._news.clear()
            if not self.engine.num_in_flight:
                await self._news.wait()
                continue
            rest = self._due - self._clock()
            if rest <= 0:
                self._collect()
                continue
            try:
                async with asyncio.timeout(rest):
                    await self._news.wait()
            except TimeoutError:
                pass
        return self._items.popleft()

    async def _finish(self) -> None:
        self._begin()
        while (rest := self._due - self._clock()) > 1e-9:
            await asyncio.sleep(rest)
        self._collect()

    def _collect(self) -> None:
        self.engine.finish()
        if self.engine.num_in_flight:
            self._due = self._clock() + self._duration_s()

    def _begin(self) -> None:
        """A step may crash as soon as it begins, when the report of the one before it has not left the process."""
        flight = self.engine._in_flight._flights[0]
        if flight.launched is not None:
            return
        try:
            self.runner.trouble.check_alive(flight.step.batch)
        except ProcessCrashedError:
            if self.node.world.rng.random() < CRASHES_AT_ONCE:
                raise

    def _duration_s(self) -> float:
        node, trouble, now = self.node, self.runner.trouble, self._clock()
        duration = node.world.rng.uniform(*node.setup.step_s) * trouble.slowness
        if trouble.hangs(self.engine._in_flight._flights[0].step.batch):
            return NEVER_S
        if trouble.compiles_until > now:
            node.mark.compiles()
        return max(duration, trouble.hangs_until - now, trouble.compiles_until - now)

    def _copies_ended(self, fence: int, failure: Failure | None) -> None:
        if failure is not None:
            self._post(CopiesFailed(failure.message))
        self._on_fence_ended(fence, failure)


class SideCopier:
    """Makes copies beside the steps, each group at once at some time."""

    def __init__(
        self,
        node: Any,
        runner: Model | AheadModel | PipelineModel,
        process: Process,
        on_ended: Callable[[int, Failure | None], None],
    ) -> None:
        self._node, self._runner, self._process, self._on_ended = node, runner, process, on_ended
        self.open: list[SideCopies] = []
        self._begun: deque[float] = deque()
        self._free_at = 0.0

    @property
    def has_open(self) -> bool:
        """Not all groups have ended."""
        return bool(self.open)

    @property
    def age_s(self) -> float:
        """How long the oldest group has been open; 0 when none is."""
        return self._process.loop.time() - self._begun[0] if self._begun else 0.0

    def begin(self, copies: SideCopies) -> None:
        """Begins with a group; what its targets held is gone from now on."""
        loop, rng, setup = self._process.loop, self._node.world.rng, self._node.setup
        make = self._runner.copies_aside(copies.copies)
        poison_targets(self._runner, copies.copies)
        self.open.append(copies)
        self._begun.append(loop.time())
        self._free_at = max(self._free_at, loop.time()) + rng.uniform(0, setup.copy_s)
        fails = rng.random() < setup.copy_failures
        loop.call_at(self._free_at, self._end, copies, make, fails)

    def _end(self, copies: SideCopies, make: Callable[[], None], fails: bool) -> None:
        self.open.remove(copies)
        self._begun.popleft()
        if not fails:
            make()
        failure = Failure("InternalError", "block copies failed") if fails else None
        self._on_ended(copies.fence, failure)

    def wait(self) -> None:
        """Nothing is open: whoever drives the engine has waited."""
        assert not self.open

    def close(self, timeout_s: float) -> None:
        """The process ends."""


class SlowMasks:
    """Makes masks on the virtual clock. No step waits for one: what is not there when the model has run is late."""

    def __init__(self, node: Any, process: Process) -> None:
        self._node, self._process = node, process

    def begin(self, jobs: Sequence[MaskJob]) -> None:
        """As `MaskMaker.begin`: half of them are done at once, the others some time later."""
        rng, mask_s = self._node.world.rng, self._node.setup.mask_s
        for job in jobs:
            job.is_begun = True
            if not mask_s or rng.random() < 0.5:
                self._make(job)
            else:
                self._process.loop.call_later(rng.uniform(0, mask_s), self._end, job)
                if isinstance(job.automaton, RuleAutomaton):
                    assert not job.automaton.is_taken, "two masks are being made"
                    job.automaton.is_taken = True

    def _end(self, job: MaskJob) -> None:
        if not job.is_dropped:
            if isinstance(job.automaton, RuleAutomaton):
                job.automaton.is_taken = False
            self._make(job)

    @staticmethod
    def _make(job: MaskJob) -> None:
        job.run()
        job.finish()

    def wait(self, jobs: Sequence[MaskJob]) -> None:
        """As `MaskMaker.wait`."""

    def wait_for_one(self, jobs: Sequence[MaskJob]) -> None:
        """As `MaskMaker.wait_for_one`: simulated steps take their time, empty ones, too."""


class _Compiler:
    """Reads rules."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def automaton(self, form: Form) -> RuleAutomaton:
        """See `GrammarPreparation`."""
        return RuleAutomaton(read_rule(form), self._vocab_size)


class Preparation(GrammarPreparation):
    """The real preparation, with a simulated compiler that takes virtual time instead of a thread."""

    def __init__(self, node: Any, process: Process) -> None:
        self._node, self._process = node, process
        self._compiler = _Compiler(node.setup.vocab_size)  # type: ignore[assignment]
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def begin(
        self,
        slot: int,
        ref: RequestRef,
        form: Form,
        prior_output: NDArray[np.int32],
        done: Callable[[Prepared], None],
    ) -> None:
        """As `GrammarPreparation.begin`."""
        wanted = _Wanted(slot, ref, form, prior_output, done)
        rng, setup = self._node.world.rng, self._node.setup
        fails = rng.random() < setup.grammar_failures
        self._timers[slot] = self._process.loop.call_later(  # type: ignore[assignment]
            rng.uniform(0, setup.compile_s), partial(self._done, wanted, fails)
        )

    def _done(self, wanted: _Wanted, fails: bool) -> None:
        prepared = self._prepare(wanted)
        if fails:
            failure = Failure("InvalidRequestError", "no such grammar", "structured_output")
            prepared = Prepared(wanted.slot, wanted.ref, None, failure)
        wanted.done(prepared)

    def cancel(self, slot: int) -> None:
        """Perhaps it has begun: then it goes on, and its outcome comes late."""
        timer = self._timers.pop(slot, None)
        if timer is not None and self._node.world.rng.random() < 0.5:
            timer.cancel()

    def close(self) -> None:
        """The process ends."""


class CheckedEngine(StepEngine):
    """The worker's engine, whose node reads what is handed over with each step."""

    def _add(self, arrived: ArrivedRequest) -> None:
        super()._add(arrived)
        if not arrived.link.is_closed:
            current_process().node.watch.moves_in(arrived.message)

    def _step(self, arrived: ArrivedStep) -> None:
        node = current_process().node
        node.message = arrived.message
        super()._step(arrived)
        node.pull_watch.look(self)


class CheckedCore(WorkerCore):
    """The worker's core, which poisons blocks that are given away, and checks what steps touch."""

    def apply(self, changes: Any) -> Any:
        """As `WorkerCore.apply`."""
        step = super().apply(changes)
        if step.batch.masks is not None:
            step.batch.masks.start()
        node = current_process().node
        node.applied(self, changes, step)
        return step

    def take_grammar(self, slot: int, ref: Any, automaton: Any) -> bool:
        """As `WorkerCore.take_grammar`. Its first mask may be made, and its request be gone, before the next step."""
        is_taken = super().take_grammar(slot, ref, automaton)
        if is_taken:
            current_process().node.ring.masks.applied(self)
        return is_taken

    def take_import(self, *arguments: Any) -> None:
        """As `WorkerCore.take_import`. The request may be let go before the next step, and its first mask be made."""
        super().take_import(*arguments)
        current_process().node.ring.masks.applied(self)

    def greet(self, term: int, instance: str) -> None:
        """As `WorkerCore.greet`: by a term that no other process has had here (T1)."""
        is_same = not self.scheduler_instance or instance == self.scheduler_instance
        if term and (term < self.scheduler_epoch or (term == self.scheduler_epoch and not is_same)):
            note(f"obeys term {term} of {instance} behind {self.scheduler_epoch} (T1)")
        super().greet(term, instance)
