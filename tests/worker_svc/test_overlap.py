"""What the step loop does with the next step, and with the results of the last one, while a step runs on a device."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.worker_svc.drafting.local_ring import GREEDY
from tests.worker_svc.threaded_ring import WAIT_S, HeldDevice, ThreadedRing
from worker_svc.core.batch import RunnerInfo
from worker_svc.runner.sim.model import continuation

INFO = RunnerInfo("sim", num_blocks=40, block_size=4, max_model_len=32, vocab_size=100, eos_token_ids=())
PROMPT = [1, 2, 3]
HELD_S = 0.05


class HeldRing(ThreadedRing):
    """Two steps are sent ahead; batches wait until they may run."""

    def __init__(self) -> None:
        self.device = HeldDevice(INFO)
        super().__init__(self.device, depth=2)
        self.client = self.submit(PROMPT, 10, GREEDY)

    def wait_for_start(self) -> None:
        """Until the next batch runs."""
        assert self.device.started.acquire(timeout=WAIT_S)

    def has_two_in_flight(self) -> bool:
        """The prompt's step and one on the token that it samples."""
        return int(self.core.table.num_in_flight.sum()) == len(PROMPT) + 1

    def close(self) -> None:
        """Lets everything run."""
        self.device.may_run.release(100)
        super().close()


@pytest.fixture
def ring() -> Iterator[HeldRing]:
    ring = HeldRing()
    yield ring
    ring.close()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_the_next_step_is_prepared_while_one_runs(ring: HeldRing) -> None:
    ring.send()
    ring.wait_for_start()
    wait_until(ring.has_two_in_flight)


def test_results_go_out_while_the_next_step_runs(ring: HeldRing) -> None:
    ring.send()
    ring.device.may_run.release()
    report = ring.take()
    assert report is not None and report.step_id == 1
    assert ring.client.output == continuation(PROMPT, 1, INFO.vocab_size)
    ring.wait_for_start()
    ring.wait_for_start()
    assert ring.core.table.num_in_flight.sum() == 1, "the second has not been collected"


def test_the_wait_for_the_step_before_counts_as_queued(ring: HeldRing) -> None:
    ring.send()
    wait_until(ring.has_two_in_flight)
    time.sleep(HELD_S)
    ring.device.may_run.release(2)
    first, second = ring.take(), ring.take()
    assert first is not None and second is not None
    assert first.timings.execute_us > HELD_S * 1e6 / 2
    assert second.timings.queued_us > HELD_S * 1e6 / 2


def test_a_batch_that_hangs_shows_in_the_age_of_the_step(ring: HeldRing) -> None:
    ring.send()
    wait_until(lambda: ring.loop.step_age_s > HELD_S)
    ring.device.may_run.release(2)
    ring.take()
    ring.take()
    wait_until(lambda: ring.loop.step_age_s == 0)


def test_steps_that_have_arrived_run_before_the_loop_ends(ring: HeldRing) -> None:
    ring.send()
    ring.wait_for_start()
    stopping = threading.Thread(target=ring.loop.stop, args=(WAIT_S,))
    stopping.start()
    ring.device.may_run.release(2)
    stopping.join(WAIT_S)
    reports = [ring.take(), ring.take()]
    assert [report.step_id for report in reports if report is not None] == [1, 2]
