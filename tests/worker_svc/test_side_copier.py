"""Copies beside the steps, in the worker's step loop."""

from __future__ import annotations

import queue
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from signalbox.protocol.columns import HOST_BIT
from signalbox.runtime.parts import FAILURES
from signalbox.v1 import to_worker_pb2
from tests.worker_svc.runner.reference import assert_greedy, make_runner
from tests.worker_svc.threaded_ring import ThreadedRing
from tools.make_random_model import make_model
from worker_svc.core.batch import BlockCopy, RunnerInfo
from worker_svc.core.faults.isolation import RunnerBrokenError
from worker_svc.core.step import Failure, SideCopies
from worker_svc.core.worker_core import WorkerCore
from worker_svc.runner.sim.model import SimRunner
from worker_svc.steps.loop import StepLoop, StepResult
from worker_svc.steps.side_copier import SideCopier

INFO = RunnerInfo("sim", 8, 4, max_model_len=32, vocab_size=100, eos_token_ids=(), num_host_blocks=8)
WAIT_S = 60


class GatedRunner(SimRunner):
    """Copies beside the steps wait until they may go on, and fail if they are asked to."""

    def __init__(self) -> None:
        super().__init__(INFO)
        self.may_copy = threading.Event()
        self.fails = self.is_lost = self.refuses = False

    def copies_aside(self, copies: list[BlockCopy]) -> Callable[[], None]:
        """As `ModelRunner`."""
        if self.refuses:
            raise OSError("no memory for the copy")
        copy = super().copies_aside(copies)

        def run() -> None:
            assert self.may_copy.wait(WAIT_S)
            if self.fails:
                raise OSError("the copy failed")
            copy()

        return run

    def check(self) -> None:
        """As `ModelRunner`."""
        if self.is_lost:
            raise OSError("the device is lost")


class Loop:
    """A step loop that has been started, and what comes out of it."""

    def __init__(self, runner: GatedRunner) -> None:
        self.reports: queue.SimpleQueue[StepResult] = queue.SimpleQueue()
        self.ended: queue.SimpleQueue[tuple[int, Failure | None]] = queue.SimpleQueue()
        self.steps = StepLoop(
            WorkerCore(INFO, num_slots=4),
            runner,
            self.reports.put,
            lambda reason: None,
            on_fence_ended=lambda *ended: self.ended.put(ended),
        )
        self.last_step_id = 0

    def run_step(
        self, copies: list[tuple[int, int]] | None = None, aside: list[tuple[int, int]] | None = None
    ) -> None:
        """Sends a step with copies in it and beside it, and waits for its report."""
        self.last_step_id += 1
        step = to_worker_pb2.SchedulerOutput(step_id=self.last_step_id, scheduler_epoch=1)
        for message, pairs in ((step.block_copies, copies), (step.side_copies, aside)):
            if pairs is not None:
                sources, targets = np.array(pairs, "<u4").T
                message.source_block_ids, message.target_block_ids = sources.tobytes(), targets.tobytes()
        if aside is not None:
            step.side_copies.fence = self.last_step_id
        self.steps.put(to_worker_pb2.AttachWorkerResponse(steps=[step]))
        assert self.reports.get(timeout=WAIT_S).report.step_id == self.last_step_id


@contextmanager
def started(runner: GatedRunner) -> Iterator[Loop]:
    loop = Loop(runner)
    loop.steps.start()
    try:
        yield loop
    finally:
        runner.may_copy.set()
        loop.steps.stop(WAIT_S)


def test_steps_go_on_and_the_end_is_told() -> None:
    """X10."""
    runner = GatedRunner()
    runner._cache[0], runner._host[3] = 7, 9
    with started(runner) as loop:
        loop.run_step(
            copies=[(0, 1 | HOST_BIT)], aside=[(1 | HOST_BIT, 5), (3 | HOST_BIT, 6), (5, 2 | HOST_BIT)]
        )
        for _ in range(5):
            loop.run_step()
        assert loop.ended.empty() and not runner._cache[5].any()
        assert loop.steps.step_age_s > 0, "copies that hang have to show"
        runner.may_copy.set()
        assert loop.ended.get(timeout=WAIT_S) == (1, None)
        assert (
            (runner._cache[5] == 7).all() and (runner._cache[6] == 9).all() and (runner._host[2] == 7).all()
        )


def test_a_snapshot_is_taken_when_no_fence_is_open() -> None:
    """X10."""
    runner = GatedRunner()
    with started(runner) as loop:
        loop.run_step(aside=[(0, HOST_BIT)])
        snapshot = loop.steps.snapshot()
        with pytest.raises(TimeoutError):
            snapshot.result(0.2)
        runner.may_copy.set()
        assert snapshot.result(WAIT_S) is not None
        assert loop.ended.get_nowait() == (1, None)


def test_nobody_waits_for_a_copying_thread_that_has_ended() -> None:
    """LO1, X9: fences end, those of later groups too."""
    ended: queue.SimpleQueue[tuple[int, Failure | None]] = queue.SimpleQueue()

    def on_ended(fence: int, failure: Failure | None) -> None:
        if fence == 1:
            raise RuntimeError("the loop is closed")
        ended.put((fence, failure))

    runner = GatedRunner()
    copier = SideCopier(runner, on_ended)
    for fence in (1, 2):
        copier.begin(SideCopies(fence, []))
    runner.may_copy.set()
    copier._thread.join()
    copier.begin(SideCopies(3, []))
    copier.wait()
    for expected in (2, 3):
        fence, failure = ended.get(timeout=WAIT_S)
        assert fence == expected and failure is not None
    assert "side-copies" in FAILURES.ended and not copier.age_s


def test_failed_copies_are_told_and_the_steps_go_on() -> None:
    runner = GatedRunner()
    runner.fails = True
    runner.may_copy.set()
    with started(runner) as loop:
        loop.run_step(aside=[(0, HOST_BIT)])
        fence, failure = loop.ended.get(timeout=WAIT_S)
        assert fence == 1 and failure is not None and "OSError: the copy failed" in failure.message
        loop.run_step()
    assert loop.steps.failure is None


def test_copies_that_cannot_be_begun_are_told_as_failed() -> None:
    runner = GatedRunner()
    runner.refuses = True
    with started(runner) as loop:
        loop.run_step(aside=[(0, HOST_BIT)])
        fence, failure = loop.ended.get(timeout=WAIT_S)
        assert fence == 1 and failure is not None and "OSError: no memory" in failure.message
        loop.run_step()
    assert loop.steps.failure is None


def test_a_process_that_fails_does_not_wait_for_its_copies() -> None:
    script = """
        import threading
        from worker_svc.core.step import SideCopies
        from worker_svc.steps.side_copier import SideCopier

        class Runner:
            def copies_aside(self, copies):
                return begin_and_hang

        begun = threading.Event()

        def begin_and_hang():
            begun.set()
            threading.Event().wait()

        copier = SideCopier(Runner(), print)
        copier.begin(SideCopies(1, []))
        begun.wait()
        raise SystemExit(3)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    assert subprocess.run(command, timeout=WAIT_S, check=False).returncode == 3


def test_copies_that_have_not_begun_are_dropped_at_the_end() -> None:
    runner = GatedRunner()
    ended: list[int] = []
    copier = SideCopier(runner, lambda fence, failure: ended.append(fence))
    copier.begin(SideCopies(1, []))
    copier.begin(SideCopies(2, []))
    copier.close(0)
    runner.may_copy.set()
    copier.wait()
    assert 2 not in ended and copier.age_s == 0


def test_a_lost_device_shows_in_copies_beside_the_steps() -> None:
    runner = GatedRunner()
    runner.fails = runner.is_lost = True
    with started(runner) as loop:
        loop.run_step(aside=[(0, HOST_BIT)])
        runner.may_copy.set()
        loop.ended.get(timeout=WAIT_S)
    assert isinstance(loop.steps.failure, RunnerBrokenError)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("tiny-llama", tmp_path_factory.mktemp("model"), seed=1)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_model_puts_out_the_same_while_its_blocks_are_swapped_beside_the_steps(
    depth: int, model_dir: Path
) -> None:
    runner = make_runner(model_dir, max_model_len=120, num_blocks=40, num_host_blocks=200)
    runner._cache.fill(1e4)
    random = np.random.default_rng(5)
    prompts = [random.integers(3, 500, length).tolist() for length in (18, 33, 24, 40)]
    ring = ThreadedRing(runner, depth=depth, side_copy_blocks=2)
    try:
        clients = [ring.submit(prompt, 30) for prompt in (*prompts, *prompts)]
        ring.run()
        # What was evicted meanwhile comes back.
        clients += [ring.submit(prompt, 10) for prompt in prompts]
        ring.run()
    finally:
        ring.close()
    stats = ring.worker.stats
    assert stats.num_fences > 0 and stats.num_preemptions > 0 and stats.num_host_hit_tokens > 0
    for client in clients:
        assert_greedy(client.output, model_dir, client.prompt, len(client.output))
