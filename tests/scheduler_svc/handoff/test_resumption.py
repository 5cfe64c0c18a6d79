"""Preempted requests start at workers that have room, where that is sooner (HO17)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_svc.core.moves.step_cost import MIN_LOOKS, StepCost
from scheduler_svc.core.parts.handoff.part import handoffs_of
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker
from signalbox.benchmarks.scheduler.plan import make_parser, make_plan
from tests.scheduler_svc.handoff.pair import A, B, Pair

STEP_US = 10_000


def busy(num_requests: int, **settings: Any) -> tuple[Pair, list[Request]]:
    """A has all requests, as decode rows, and B none; nobody has looked yet."""
    pair = Pair(attach=False, **settings)
    pair.fields["num_blocks"] = 256
    pair.attach(A)
    pair.attach(B)
    requests = [pair.submit(f"r{number}", 6 + 8 * number) for number in range(num_requests)]
    for _ in range(20):
        pair.core.schedule(A, 0.0)
        pair.report(A, duration_us=STEP_US)
    return pair, requests


def look(pair: Pair, now: float, token_s: float = 0.001) -> list[Request]:
    """One look, with steps whose cost is known. Returns who is handed over by now, in order."""
    cost = StepCost()
    cost.look = lambda worker: None  # type: ignore[method-assign]
    cost._num_looks = MIN_LOOKS  # steps of 10 ms + `token_s` per token
    cost._sums[:] = 2, 40, 0.02 + 40 * token_s, 1000, 0.2 * 2 + 1000 * token_s
    pair.core.policies._costs = dict.fromkeys((A, B), cost)
    pair.core.policies.look(now)
    pair.core.check_integrity()
    return [handoff.request for handoff in handoffs_of(pair.a).exports.values()]


def test_nothing_moves_unasked_unless_it_is_set() -> None:
    """HO17: off by default."""
    pair, requests = busy(2)
    preempted(pair, requests[0])
    pair.core.policies.tick(5.0)
    assert not handoffs_of(pair.a).exports


def preempted(pair: Pair, request: Request) -> Worker:
    """Takes the request's blocks, and has the worker report it."""
    worker = pair.a
    assert request.slot is not None
    worker.table.refuse(request.slot)
    worker.draining = True
    for member in worker.requests():  # it is not to resume here by itself
        member.client_paused = member is request
    pair.step(A)
    pair.step(A)
    request.client_paused = worker.draining = False
    assert request.slot in worker.table.preempted
    return worker


def test_a_request_that_moved_stays_for_a_time() -> None:
    """HO17"""
    pair, requests = busy(2, resume_elsewhere=True, rebalance_pause_s=30.0)
    preempted(pair, requests[0])
    assert look(pair, 3.0) == requests[:1]
    pair.core.handoffs.stop(requests[0].handoff, "target", 3.0)  # type: ignore[arg-type]
    assert look(pair, 32.9) == []
    assert look(pair, 33.1) == requests[:1]


@pytest.mark.parametrize(("token_s", "moves"), [(0.001, True), (0.5, False), (0.0, False)])
def test_a_preempted_request_starts_elsewhere_where_that_is_sooner(token_s: float, moves: bool) -> None:
    """HO17: the first end here is 80 steps of 10 ms away; there it has some 26 tokens to compute."""
    pair, requests = busy(2, resume_elsewhere=True)
    preempted(pair, requests[0])
    assert (look(pair, 3.0, token_s) == requests[:1]) is moves
    if moves:
        assert requests[0].handoff is not None
        assert not requests[0].handoff.has_blocks


def test_a_step_cost_is_found_from_counters() -> None:
    """HO17: 10 ms and 2 ms per token, from steps of several sizes; nothing is said while all steps are alike."""
    pair, _ = busy(1)
    worker, cost = pair.a, StepCost()
    for number in range(3 * MIN_LOOKS):
        num_tokens = 5 + 10 * (number % 3)
        worker.stats.num_reported += 2
        worker.stats.num_output_tokens += 2 * num_tokens
        worker.stats.step_us += 2 * (10_000 + 2_000 * num_tokens)
        cost.look(worker)
        if number < MIN_LOOKS - 1:
            assert cost.token_s == 0.0
    assert cost.token_s == pytest.approx(0.002, rel=0.05)


def test_a_deployment_hands_over_in_simulated_time() -> None:
    """HO17: all end with all of their tokens, and what is handed over is committed."""
    options = "--workers 2 --blocks 120 --requests 40 --rate 2 --output 100 500 --base-ms 15 --token-ms 0.5"
    args = make_parser().parse_args([*options.split(), "--resume-elsewhere"])
    plan, num_gaps = make_plan(args), list[bool]()
    plan.on_end = lambda turn: num_gaps.append(len(turn.gaps) == turn.num_output - 1)
    plan.run()
    plan.scheduler.check_integrity()
    assert plan.num_done == 40
    assert all(num_gaps)
    counts = plan.scheduler.handoffs.counts
    assert counts.num_committed > 0
    assert counts.num_begun == counts.num_committed + sum(counts.failed.values())
