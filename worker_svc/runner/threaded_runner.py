"""Runs another runner in a thread of its own, so that the next batch is prepared while one runs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.batch import Batch, BlockCopy, ModelRunner, PreparingRunner, Sampled
from worker_svc.core.run_ahead import is_plain

I64 = NDArray[np.int64]
T = TypeVar("T")


@dataclass
class _Outcome(Generic[T]):
    """What a call came to. Whoever takes it has it alone: an error holds on to the memory of a batch, which may be
    needed to run that again."""

    result: T | None = None
    error: BaseException | None = None

    def take(self) -> T:
        """The result, once. Raises the error."""
        result, error, self.result, self.error = self.result, self.error, None, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # or this frame and the error would keep each other
        return result  # type: ignore[return-value]


class _Task(NamedTuple):
    """A call of the runner, and what becomes of it."""

    call: Callable[[], Any]
    outcome: Future[_Outcome[Any]]


@dataclass(frozen=True)
class LaunchedBatch:
    """A batch that runs, or waits for those before it."""

    outcome: Future[_Outcome[Sampled]]

    @property
    def is_done(self) -> bool:
        """Its tokens are there, or never will be."""
        return self.outcome.done()

    def when_done(self, call: Callable[[], None]) -> None:
        """See `TellsWhenDone`."""
        self.outcome.add_done_callback(lambda outcome: call())


class ThreadedRunner:
    """An `AheadRunner` over a runner that takes one batch after the other.

    One thread makes all calls of that runner but `prepare`, in the order in which they come: what its kernels keep by
    thread, above all the threads that help them, is there once.
    """

    def __init__(self, runner: ModelRunner, num_slots: int) -> None:
        """num_slots: requests that may be here at a time."""
        self.info, self._runner = runner.info, runner
        self._last = _LastTokens(num_slots)
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._is_closed = False
        # A process that fails does not wait for it: a batch cannot be interrupted.
        self._thread = threading.Thread(target=self._run, name="runner", daemon=True)
        self._thread.start()

    def launch(self, batch: Batch, in_flight: NDArray[np.bool_]) -> LaunchedBatch:
        """See `AheadRunner`."""
        assert is_plain(batch), "it needs the host, which may be a step behind"
        # While it runs, slots change hands; and its tokens may be filled in here and, if it is lost, by the host.
        batch = replace(batch, token_ids=batch.token_ids.copy(), sampling=batch.sampling.copied())
        run = self._prepare(batch)
        return LaunchedBatch(self._give(partial(self._run_launched, batch, np.flatnonzero(in_flight), run)))

    def collect(self, launched: LaunchedBatch) -> Sampled:
        """See `AheadRunner`."""
        return launched.outcome.result().take()

    def execute(self, batch: Batch) -> Sampled:
        """See `ModelRunner`."""
        return self._call(partial(self._runner.execute, batch))

    def check(self) -> None:
        """See `ModelRunner`."""
        self._call(self._runner.check)

    def copy_blocks(self, copies: list[BlockCopy]) -> None:
        """See `ModelRunner`."""
        self._call(partial(self._runner.copy_blocks, copies))

    def copies_aside(self, copies: list[BlockCopy]) -> Callable[[], None]:
        """See `ModelRunner`. Waits for all batches before it, since the copies themselves may not."""
        return self._call(partial(self._runner.copies_aside, copies))

    def close(self, timeout_s: float) -> None:
        """Ends the thread behind what it was given, and waits so long for that. What is called later fails."""
        self._is_closed = True
        self._tasks.put(None)
        self._thread.join(timeout_s)

    def _prepare(self, batch: Batch) -> Callable[[], Sampled]:
        runner = self._runner
        return (
            runner.prepare(batch) if isinstance(runner, PreparingRunner) else partial(runner.execute, batch)
        )

    def _call(self, call: Callable[[], T]) -> T:
        return self._give(call).result().take()

    def _give(self, call: Callable[[], T]) -> Future[_Outcome[T]]:
        if self._is_closed:
            raise RuntimeError("the runner has been closed")
        outcome: Future[_Outcome[T]] = Future()
        self._tasks.put(_Task(call, outcome))
        return outcome

    # -- in the thread --

    def _run(self) -> None:
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        """Makes one call, and remembers nothing of it. False: there will be none."""
        task = self._tasks.get()
        if task is None:
            return False
        try:
            outcome = _Outcome(task.call())
        except BaseException as error:  # whatever it is: somebody waits for it
            outcome = _Outcome(error=error)
        task.outcome.set_result(outcome)
        return True

    def _run_launched(self, batch: Batch, ahead: I64, run: Callable[[], Sampled]) -> Sampled:
        """`ahead` `[A]` are the rows whose query token the batch before it has sampled; `run` executes the batch."""
        try:
            self._last.fill_in(batch, ahead)
            sampled = run()
        except BaseException:
            self._last.forget()
            raise
        self._last.take(batch, sampled)
        return sampled


class _LastTokens:
    """By slot, the token that a launched batch sampled last, and the position that it gets."""

    def __init__(self, num_slots: int) -> None:
        self._tokens = np.zeros(num_slots, np.int32)
        self._positions = np.full(num_slots, -1, np.int32)

    def fill_in(self, batch: Batch, rows: I64) -> None:
        """Puts the query tokens of decode `rows` into `batch`. ValueError if no batch has sampled one of them."""
        places, slots = batch.query_starts[rows], batch.slots[rows]
        lost = self._positions[slots] != batch.positions[places]
        if lost.any():
            raise ValueError(
                f"slot {slots[lost][0]}: no batch has sampled its token {batch.positions[places][lost][0]}"
            )
        batch.token_ids[places] = self._tokens[slots]

    def take(self, batch: Batch, sampled: Sampled) -> None:
        """Keeps what a batch has sampled."""
        slots = batch.slots[batch.sample_rows]
        self._tokens[slots] = sampled.token_ids
        self._positions[slots] = batch.seq_lens[batch.sample_rows]

    def forget(self) -> None:
        """A batch was lost: what follows it would not fit."""
        self._positions[:] = -1
