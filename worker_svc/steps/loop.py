"""The worker's step loop: a thread of its own that owns the core and the runner, so that no stream ever waits for the
model. What it does with what arrives is the engine's (worker_svc/steps/engine.py)."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

from signalbox.protocol.step_limits import STEP_TIMEOUT_S
from worker_svc.core.batch import ModelRunner
from worker_svc.core.step import Failure, FrontendOutput
from worker_svc.core.worker_core import WorkerCore
from worker_svc.grammar.coordinator import GrammarResult
from worker_svc.grammar.preparation import GrammarPreparation
from worker_svc.steps.engine import Disk, Listeners, StepEngine, Surroundings
from worker_svc.steps.handoff_coordinator import HandoffListeners
from worker_svc.steps.inbox import StepInbox
from worker_svc.steps.items import CopiesFailed, Item
from worker_svc.steps.mask_pool import DEFAULT_THREADS, MaskPool
from worker_svc.steps.results import StepResult, StepTotals
from worker_svc.steps.side_copier import SideCopier
from worker_svc.tracing import RunSpans

logger = logging.getLogger(__name__)
POLL_S = 0.0002
"""How often the loop looks whether a step on the device is done, while it waits for the next one to arrive."""


class StepLoop(StepInbox):
    """Runs steps in the order of their arrival. Callbacks are called in the step thread, `on_fence_ended` in that of
    the copies beside the steps."""

    def __init__(
        self,
        core: WorkerCore,
        runner: ModelRunner,
        on_result: Callable[[StepResult], None],
        on_refused: Callable[[str], None],
        spans: RunSpans | None = None,
        preparation: GrammarPreparation | None = None,
        on_grammar_result: Callable[[GrammarResult], None] = lambda result: None,
        on_fence_ended: Callable[[int, Failure | None], None] = lambda fence, failure: None,
        on_refusal: Callable[[list[FrontendOutput]], None] = lambda outputs: None,
        most_tokens: int = 8192,
        on_turn: Callable[[int, int], None] = lambda step_id, limit_ms: None,
        handoffs: HandoffListeners | None = None,
        disk: Disk | None = None,
        mask_threads: int = DEFAULT_THREADS,
        step_timeout_s: float = STEP_TIMEOUT_S,
    ) -> None:
        """preparation: of the grammars; None: requests whose output has to follow a form are refused. on_refusal: what
        frontends are to be told of a request that was refused when it came. most_tokens: that the runner takes in a
        step. on_turn: told of each step when it becomes the oldest that has not ended, and how long it may run. disk:
        the disk tier, if there is one. mask_threads: threads that make the masks of forms. step_timeout_s: the longest
        that a step may run for which nobody says it."""
        self._inbox: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        super().__init__(self._inbox.put, time.monotonic)
        self._copier = SideCopier(runner, self._side_copies_ended)
        self._masks = MaskPool(mask_threads)
        around = Surroundings(time.monotonic, self._inbox.put, self._copier, disk, self._masks)
        listeners = Listeners(
            on_result, on_refused, on_grammar_result, on_refusal, on_turn, handoffs or HandoffListeners()
        )
        self._engine = StepEngine(
            core, runner, around, listeners, spans, preparation, most_tokens, step_timeout_s
        )
        self._on_fence_ended = on_fence_ended
        self._thread = threading.Thread(target=self._run, name="step-loop", daemon=True)
        self.failure: BaseException | None = None
        """What ended the thread, if anything did: the state can be trusted no more, and the process has to end."""

    @property
    def totals(self) -> StepTotals:
        """Totals of all steps so far."""
        return self._engine.totals

    @property
    def step_age_s(self) -> float:
        """How long the step that runs now, or the oldest copies beside the steps, have been running; 0 when none do."""
        return self._engine.step_age_s

    @property
    def is_alone(self) -> bool:
        """There is no scheduler, and steps are the worker's own. Any thread may ask."""
        return self._engine.is_alone

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Lets the steps that have arrived run, then ends the thread."""
        self._inbox.put(None)
        self._thread.join(timeout_s)
        self._masks.close()
        self._copier.close(timeout_s)

    def close_masks(self) -> None:
        """Makes no more masks, also where the thread of the steps does not end. Blocks while one is being made."""
        self._masks.close()

    def _run(self) -> None:
        engine = self._engine
        try:
            while (item := self._next()) is not None:
                while engine.must_finish_before(item):
                    engine.finish()
                engine.take(item)
                while engine.is_full:
                    engine.finish()
            engine.finish_all()
        except BaseException as error:  # whatever it is, nobody else would end the process
            logger.exception("the step loop failed")
            self.failure = error

    def _next(self) -> Item | None:
        """What comes next; the steps in flight that are done meanwhile are finished."""
        engine = self._engine
        while True:
            if engine.is_alone and self._inbox.empty() and (own := engine.author()) is not None:
                return own
            if not engine.num_in_flight:
                return self._inbox.get()
            is_done = engine.is_done
            try:
                return self._inbox.get(timeout=0 if is_done else POLL_S)
            except queue.Empty:
                if is_done:
                    engine.finish()

    def _side_copies_ended(self, fence: int, failure: Failure | None) -> None:
        """Called by the copying thread, so that nobody waits for the step that runs."""
        if failure is not None:
            self._inbox.put(CopiesFailed(failure.message))
        self._on_fence_ended(fence, failure)


__all__ = ["StepLoop", "StepResult", "StepTotals"]
