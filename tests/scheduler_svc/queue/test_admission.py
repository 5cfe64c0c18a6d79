"""Which requests may wait while a model has no worker."""

from __future__ import annotations

import pytest

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.notices import Rejected
from scheduler_svc.core.state.requests.request import RequestKey
from scheduler_svc.core.state.requests.tenants import TenantLimits
from tests.scheduler_svc.harness import WORKER, make_request, make_scheduler, run_step


@pytest.mark.parametrize(("at", "is_refused"), [(24.9, False), (25.0, True)])
def test_the_grace_of_a_model_begins_when_its_last_worker_went(at: float, is_refused: bool) -> None:
    scheduler = make_scheduler(worker_grace_s=5.0, no_worker_grace_s=10.0)
    scheduler.detach_worker(WORKER, 10.0)
    scheduler.tick(15.0)
    assert not scheduler.workers
    scheduler.submit(make_request("a", 3), at)
    assert [isinstance(notice, Rejected) for notice in scheduler.drain_notices()] == [True] * is_refused


def refusals(scheduler: Scheduler) -> dict[str, str]:
    """Messages by request id."""
    return {n.key.request_id: n.message for n in scheduler.drain_notices() if isinstance(n, Rejected)}


def test_a_request_that_was_accepted_once_passes_the_limits_of_admission() -> None:
    """W2: 36 of 40 half-done requests were refused in mid-stream because so many waited."""
    scheduler = make_scheduler(max_waiting=1)
    scheduler.queues.set_limits(TenantLimits(max_queued=1, best_priority=3), {})
    scheduler.submit(make_request("first", 3, priority=3), 0.0)
    for name in ("second", "third"):
        scheduler.submit(make_request(name, 3, num_losses=1, num_prior_output_tokens=5), 0.0)
    scheduler.submit(make_request("new", 3, priority=3), 0.0)
    assert list(refusals(scheduler)) == ["new"]
    assert scheduler.num_waiting == 3


@pytest.mark.parametrize("at", [9.9, 10.0])
def test_a_replay_waits_while_the_workers_are_drained_as_long_as_for_none(at: float) -> None:
    """W2: 22 replays were ended by a drain, one with output."""
    scheduler = make_scheduler(no_worker_grace_s=10.0)
    scheduler.drain_worker(WORKER, True, 0.0)
    scheduler.submit(make_request("replay", 3, num_losses=1), 0.0)
    scheduler.submit(make_request("new", 3), 0.0)
    assert list(refusals(scheduler)) == ["new"]
    scheduler.drain_worker(WORKER, True, 5.0)
    scheduler.tick(at)
    assert list(refusals(scheduler)) == (["replay"] if at == 10.0 else []), (
        "and no longer, however often it is drained"
    )


def test_a_model_without_a_worker_does_not_take_the_room_of_others() -> None:
    """`max_waiting` is for each model."""
    scheduler = make_scheduler(max_waiting=2, max_num_seqs=1)
    for number in range(3):
        scheduler.submit(make_request(f"other{number}", 3, model="other"), 0.0)
    assert list(refusals(scheduler)) == ["other2"]
    scheduler.submit(make_request("a", 3), 0.0)
    assert not refusals(scheduler) and scheduler.num_waiting == 3


def test_what_waits_is_bounded_in_bytes_and_whoever_is_refused_is_told_when_to_try_again() -> None:
    """W1: a replay, too, which its frontend submits again (F3)."""
    scheduler = make_scheduler(max_waiting_bytes=1 << 20)
    scheduler.submit(make_request("a", 3, payload=bytes(700_000), meta=bytes(100_000)), 0.0)
    scheduler.submit(make_request("b", 3, payload=bytes(300_000)), 0.0)
    scheduler.submit(make_request("c", 3, payload=bytes(300_000), num_losses=2), 0.0)
    rejected = [notice for notice in scheduler.drain_notices() if isinstance(notice, Rejected)]
    assert [(n.key.request_id, n.code) for n in rejected] == [
        ("b", "ResourceExhaustedError"),
        ("c", "ResourceExhaustedError"),
    ]
    assert all(notice.retry_after_s for notice in rejected)
    scheduler.cancel(RequestKey("f", "a"), 1)
    assert scheduler.queues.num_waiting_bytes == 0
    scheduler.submit(make_request("large", 3, payload=bytes(2_000_000)), 0.0)
    assert scheduler.num_waiting == 1, "one that would never fit has the queue for itself"
    assert run_step(scheduler).placed and scheduler.queues.num_waiting_bytes == 0
    scheduler.check_integrity()


def test_tokens_that_wait_are_those_that_have_to_be_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker has cached does not count, and is looked up for so many requests only."""
    scheduler = make_scheduler(max_num_seqs=1)
    first_two_blocks = bytes(range(32))
    scheduler.submit(make_request("runs", 9, hashes=first_two_blocks), 0.0)
    assert scheduler.queues.num_uncached_tokens() == 9
    run_step(scheduler)
    assert scheduler.queues.num_uncached_tokens() == 0
    scheduler.submit(make_request("cached", 12, hashes=first_two_blocks), 0.0)
    scheduler.submit(make_request("other", 7, num_prior_output_tokens=3, num_losses=1), 0.0)
    assert scheduler.queues.num_uncached_tokens() == (12 - 8) + (7 + 3)
    monkeypatch.setattr("scheduler_svc.core.queue.queues.MAX_LOOKED_UP", 0)
    assert scheduler.queues.num_uncached_tokens() == 12 + 10
