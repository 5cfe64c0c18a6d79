"""Pooling requests: one vector, no tokens."""

from __future__ import annotations

import pytest

from signalbox.v1 import to_worker_pb2
from tests.simulation.named import INFLIGHT, request, simulate
from worker_svc.core.requests.pooling import PoolingMode
from worker_svc.links import delta


@INFLIGHT
@pytest.mark.parametrize("threshold", [0, 5])
def test_pooling_between_generating_requests(inflight: int, threshold: int) -> None:
    """L5, L8: equal prompts, so that cached blocks tempt; few blocks, so that prefills are preempted."""
    simulation = simulate(inflight, num_blocks=20, long_prefill_token_threshold=threshold)
    pooling = []
    for number in range(9):
        session = request(f"r{number}", 20 + number, 12)
        if number % 3:
            session.pooling = list(PoolingMode)[number % 3]
            pooling.append(session)
        simulation.plan(session, at=1.5 + 0.02 * number)
    outcome = simulation.run()
    assert outcome.num_attempts == outcome.num_requests
    assert all(session.ends == ["FINISH_REASON_STOP"] and not session.output for session in pooling)


@INFLIGHT
def test_a_pooling_request_that_fills_the_cache(inflight: int) -> None:
    """L8."""
    simulation = simulate(inflight, num_blocks=6, long_prefill_token_threshold=5)
    whole, over = request("whole", 24, 1), request("over", 25, 1, 500)
    whole.pooling = over.pooling = PoolingMode.MEAN
    simulation.faults = True  # one is refused
    simulation.plan(whole, at=1.5)
    simulation.plan(over, at=1.6)
    simulation.plan(request("after", 10, 15, 300), at=1.6)
    simulation.run()
    assert whole.ends == ["FINISH_REASON_STOP"]
    assert over.ends == ["rejected: the prompt has 25 tokens; 24 are allowed"]


@INFLIGHT
def test_a_pooling_request_that_fails_in_the_worker(inflight: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """L8: its first step comes all the same: no decode row may follow it on either side."""
    parse = delta.parse_new_request

    def parse_broken(new: to_worker_pb2.NewRequestData, info):  # type: ignore[no-untyped-def]
        if new.ref.request_id == "bad":
            new.payload = b"\xff\xff\xff"
        return parse(new, info)

    monkeypatch.setattr(delta, "parse_new_request", parse_broken)
    simulation = simulate(inflight)
    simulation.faults = True
    bad = request("bad", 9, 1)
    bad.pooling = PoolingMode.LAST
    simulation.plan(bad, at=1.5)
    simulation.plan(request("good", 9, 10, 100), at=1.5)
    simulation.run()
    assert bad.ends == ["FINISH_REASON_ERROR"] and simulation.scheduler.num_divergences == 0
