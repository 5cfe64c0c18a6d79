"""A runner that takes one batch after the other runs ahead in a thread."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from tests.simulation.ahead import DeviceError
from tests.worker_svc.core.test_worker_core import INFO, PROMPT, new, start
from tests.worker_svc.sim_in_thread import WAIT_S, HeldSim
from worker_svc.core.batch import AheadRunner, Batch, BlockCopy, Sampled
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.running_step import RunningStep
from worker_svc.core.step import StepDelta
from worker_svc.core.worker_core import WorkerCore
from worker_svc.runner.sim.model import SimRunner, continuation
from worker_svc.runner.threaded_runner import LaunchedBatch, ThreadedRunner

NUM_SLOTS = 4


def first_steps(count: int) -> tuple[WorkerCore, list[RunningStep]]:
    """Of one request, none of which has run: its prompt, and a decode step on a token in flight."""
    core = WorkerCore(INFO, NUM_SLOTS)
    core.add(new())
    started = [start(0, [3, 1, 2, 4], len(PROMPT))]
    return core, [
        core.apply(StepDelta(number, 1, started=started if number == 1 else []))
        for number in range(1, count + 1)
    ]


def launch(runner: ThreadedRunner, steps: list[RunningStep]) -> list[LaunchedBatch]:
    return [runner.launch(step.batch, step.ahead) for step in steps]


def test_it_is_an_ahead_runner() -> None:
    runner = ThreadedRunner(SimRunner(INFO), NUM_SLOTS)
    assert isinstance(runner, AheadRunner) and runner.info is INFO
    runner.close(WAIT_S)


def test_batches_are_launched_while_one_runs() -> None:
    sim = HeldSim(INFO)
    runner, (_, steps) = ThreadedRunner(sim, NUM_SLOTS), first_steps(2)
    launched = launch(runner, steps)
    assert sim.started.acquire(timeout=WAIT_S)
    assert not any(batch.is_done for batch in launched)
    assert not sim.started.acquire(blocking=False), "one after the other"
    sim.may_run.release(2)
    tokens = [int(runner.collect(batch).token_ids[0]) for batch in launched]
    assert tokens == continuation(PROMPT, 2, INFO.vocab_size)
    assert all(batch.is_done for batch in launched)
    runner.close(WAIT_S)


def test_a_runner_that_can_prepare_does_so_in_the_caller_s_thread() -> None:
    class Preparing(HeldSim):
        prepared_in: int | None = None

        def prepare(self, batch: Batch) -> Callable[[], Sampled]:
            self.prepared_in = threading.get_ident()
            return lambda: self.execute(batch)

    sim, (_, steps) = Preparing(INFO), first_steps(2)
    runner = ThreadedRunner(sim, NUM_SLOTS)
    launched = launch(runner, steps)
    assert sim.prepared_in == threading.get_ident()
    sim.may_run.release(2)
    tokens = [int(runner.collect(batch).token_ids[0]) for batch in launched]
    assert tokens == continuation(PROMPT, 2, INFO.vocab_size), "the token came after the preparation"
    assert threading.get_ident() not in sim.threads
    runner.close(WAIT_S)


def test_a_batch_tells_when_it_is_done() -> None:
    sim, told = HeldSim(INFO), threading.Event()
    runner, (_, steps) = ThreadedRunner(sim, NUM_SLOTS), first_steps(1)
    (launched,) = launch(runner, steps)
    launched.when_done(told.set)
    assert not told.is_set()
    sim.may_run.release()
    assert told.wait(WAIT_S) and launched.is_done
    late = threading.Event()
    launched.when_done(late.set)
    assert late.is_set(), "it was done before"
    runner.close(WAIT_S)


def test_slots_may_change_hands_while_a_batch_runs() -> None:
    class Reading(HeldSim):
        temperature = 0.0

        def execute(self, batch: Batch) -> Sampled:
            sampled = super().execute(batch)
            self.temperature = float(batch.sampling.temperature[0])
            assert batch.sampling.params[0] is not None
            return sampled

    sim, (core, (step,)) = Reading(INFO), first_steps(1)
    core.table.sampling.set(0, SamplingParams(temperature=0.5))
    runner = ThreadedRunner(sim, NUM_SLOTS)
    (launched,) = launch(runner, [step])
    core.table.sampling.set(0, SamplingParams(temperature=0.25))
    core.table.sampling.clear(0)
    sim.may_run.release()
    runner.collect(launched)
    assert sim.temperature == 0.5
    runner.close(WAIT_S)


def test_the_token_of_a_lost_batch_is_not_made_up() -> None:
    class Losing(SimRunner):
        fails = False

        def execute(self, batch: Batch) -> Sampled:
            if self.fails:
                raise DeviceError("lost")
            return super().execute(batch)

    sim, (_, steps) = Losing(INFO), first_steps(2)
    runner = ThreadedRunner(sim, NUM_SLOTS)
    (before,) = launch(runner, steps[:1])
    runner.collect(before)  # leaves a token for the same slot and position
    sim.fails = True
    first, second = launch(runner, steps)
    with pytest.raises(DeviceError):
        runner.collect(first)
    with pytest.raises(ValueError, match="slot 0: no batch has sampled its token 5"):
        runner.collect(second)
    runner.close(WAIT_S)


def test_one_thread_makes_all_calls_and_ends() -> None:
    before = set(threading.enumerate())
    sim = HeldSim(INFO)
    sim.may_run.release(2)
    runner, (_, steps) = ThreadedRunner(sim, NUM_SLOTS), first_steps(1)
    (launched,) = launch(runner, steps)
    runner.execute(steps[0].batch)
    runner.collect(launched)
    runner.check()
    assert len(sim.threads) == 1 and threading.get_ident() not in sim.threads
    assert set(threading.enumerate()) != before
    runner.close(WAIT_S)
    assert set(threading.enumerate()) == before
    with pytest.raises(RuntimeError, match="closed"):
        runner.execute(steps[0].batch)


def test_copies_wait_for_the_batches_before_them() -> None:
    sim, (_, steps) = HeldSim(INFO), first_steps(1)
    runner = ThreadedRunner(sim, NUM_SLOTS)
    (launched,) = launch(runner, steps)
    copying = threading.Thread(target=lambda: runner.copy_blocks([BlockCopy(3, False, 20, False)]))
    copying.start()
    sim.may_run.release()
    runner.collect(launched)
    copying.join(WAIT_S)
    assert np.array_equal(sim._cache[20], sim._cache[3]) and sim._cache[20].all()
    runner.close(WAIT_S)


def test_a_batch_that_failed_leaves_no_memory_behind() -> None:
    """What its error holds on to may be what a smaller batch needs."""

    class Large:
        pass

    held: list[weakref.ref[Large]] = []

    class Failing(SimRunner):
        def execute(self, batch: Batch) -> Sampled:
            large = Large()
            held.append(weakref.ref(large))
            raise DeviceError("no memory")

    runner, (_, steps) = ThreadedRunner(Failing(INFO), NUM_SLOTS), first_steps(1)
    launched = launch(runner, steps)
    for call in (lambda: runner.collect(launched[0]), lambda: runner.execute(steps[0].batch)):
        with suppress(DeviceError):
            call()
    runner.check()  # the thread has come back from both
    assert [reference() for reference in held] == [None, None]
    runner.close(WAIT_S)
