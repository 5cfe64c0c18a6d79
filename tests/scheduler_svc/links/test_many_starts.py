"""Q10: more requests may start than can be placed in one piece of work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.step.prefill_admission import MAX_STARTS
from scheduler_svc.step_loop import MAX_PLACED, StepLoop
from signalbox.v1 import to_worker_pb2
from tests.scheduler_svc.attached import make_hello
from tests.scheduler_svc.harness import make_request

MANY = 3 * MAX_STARTS + 10


class Later:
    """What was asked for, to be called by the test."""

    def __init__(self) -> None:
        self.actions: deque[Callable[[], None]] = deque()

    def call_at(self, when: float, action: Callable[[], None]) -> None:
        self.actions.append(action)


@pytest.mark.parametrize("num_workers", [1, 3])
def test_requests_are_placed_some_at_a_time_until_all_are(num_workers: int) -> None:
    """Kind H: 4,000 at once were one callback of 0.6 s. Between two pieces others have their turn."""
    later = Later()
    config = SchedulerConfig(
        max_num_seqs=4096, max_num_batched_tokens=8192, max_inflight_steps=2, balance_wait_ms=0
    )
    core = Scheduler(config, 1, 0.0)
    loop = StepLoop(core, lambda: 0.0, later.call_at)
    sent: list[to_worker_pb2.AttachWorkerResponse] = []
    for number in range(num_workers):
        hello = make_hello(f"worker-{number}").hello
        hello.num_slots, hello.num_blocks, hello.max_num_batched_tokens = 4096, 16384, 16384
        loop.attach_worker(hello, sent.append)
    for number in range(MANY):
        core.submit(make_request(f"r{number}", 4), 0.0)
    sent.clear()
    loop.tick()
    sizes = [MANY - core.num_waiting]
    while later.actions and core.num_waiting:
        before = core.num_waiting
        later.actions.popleft()()
        sizes.append(before - core.num_waiting)
    assert max(sizes) <= MAX_PLACED + MAX_STARTS and len(sizes) > 1
    steps = [step for message in sent for step in message.steps]
    placed = MANY - core.num_waiting
    assert placed >= config.max_inflight_steps * MAX_STARTS, "whoever was put off came to nothing"
    assert len(steps) >= -(-placed // MAX_STARTS)
    core.check_integrity()
