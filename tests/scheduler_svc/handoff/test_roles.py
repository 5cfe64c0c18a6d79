"""Prompts go where they are computed, and what decodes goes to where others decode."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_svc.core.explain.explanation import explain
from scheduler_svc.core.parts.handoff.part import handoffs_of
from signalbox.benchmarks.scheduler.plan import make_parser, make_plan
from signalbox.protocol.enums import WorkerRole
from tests.scheduler_svc.handoff.pair import A, B, Pair
from tests.scheduler_svc.harness import make_request


def with_roles(**settings: Any) -> Pair:
    """A computes prompts, and B decodes."""
    pair = Pair(attach=False, **settings)
    pair.fields["num_blocks"] = 256
    pair.attach(A, role=WorkerRole.PREFILL)
    pair.attach(B, role=WorkerRole.DECODE)
    return pair


@pytest.mark.parametrize("way", ["always", "never"])
def test_prompts_go_to_who_computes_them_while_there_is_room(way: str) -> None:
    """PD2: a role makes nothing unservable."""
    pair = with_roles(prefill_hand_off=way, max_num_seqs=1)
    requests = [make_request(f"r{number}", 40) for number in range(2)]
    pair.core.submit(requests[0], 0.0)
    assert pair.step(B) is None
    pair.core.schedule(A, 0.0)
    assert requests[0].worker_id == A
    pair.core.submit(requests[1], 0.0)
    pair.step(B)
    assert requests[1].worker_id == B, "A has no place"


def test_the_last_worker_takes_everything() -> None:
    """PD2"""
    pair = with_roles()
    pair.a.draining = True
    request = make_request("r", 40)
    pair.core.submit(request, 0.0)
    pair.step(B)
    assert request.worker_id == B


@pytest.mark.parametrize("way", ["always", "never"])
def test_a_prompt_waits_for_the_role_however_much_is_ahead_of_it(way: str) -> None:
    """PD2: A has a place and blocks for it, and B nothing to do."""
    pair = with_roles(prefill_hand_off=way, max_num_batched_tokens=64)
    long, short = make_request("long", 600), make_request("short", 20)
    pair.core.submit(long, 0.0)
    pair.core.schedule(A, 0.0)
    pair.core.submit(short, 0.0)
    assert pair.step(B) is None and short.worker_id is None


@pytest.mark.parametrize(("way", "moves"), [("always", True), ("never", False)])
def test_after_its_prompt_a_request_goes_to_who_decodes(way: str, moves: bool) -> None:
    """PD3: and whoever asks hears why."""
    pair = with_roles(prefill_hand_off=way)
    request = pair.submit("r", 40)
    pair.core.policies.next_look = 1e9
    pair.core.policies.reported(pair.a, [request], 2.0)
    assert (request.handoff is not None) is moves
    pair.core.check_integrity()
    pair.step(A, 2.0)  # behind it the request is a row
    sentence = explain(pair.core, request, 2.0).sentence
    assert ("it is moved behind its prompt" in sentence) is moves
    assert pair.core.handoffs.counts.num_by_role == moves


def test_a_request_that_has_not_moved_hears_why() -> None:
    """PD3: a worker has room and the hand-off has not begun, or no worker has room."""
    pair = with_roles()
    request = pair.submit("r", 40)
    request.history.no_move_before = 1e9
    pair.step(A)
    assert explain(pair.core, request, 0.0).sentence.endswith("; a move to b waits")
    pair.b.draining = True
    assert "nobody whose role is to decode has room" in explain(pair.core, request, 0.0).sentence


def test_the_oldest_rows_move_first_as_many_as_may() -> None:
    """PD3: at most `max_handoffs_per_worker` at a time."""
    pair = with_roles(max_handoffs_per_worker=2)
    pair.core.policies.next_look = 1e9
    requests = [pair.submit(f"r{number}", 8) for number in range(4)]
    for _ in range(2):
        pair.core.policies.look(60.0)
        assert [handoff.request for handoff in handoffs_of(pair.a).exports.values()] == requests[:2]


def test_a_role_is_the_process_own_until_somebody_says_another() -> None:
    """PD1: it outlives a link, and no process."""
    pair = with_roles()
    pair.b.role = WorkerRole.BOTH
    pair.attach(B, role=WorkerRole.DECODE)
    assert pair.b.role is WorkerRole.BOTH
    pair.attach(B, role=WorkerRole.DECODE, instance="another")
    assert pair.b.role is WorkerRole.DECODE


def test_prompts_and_decoding_are_apart_in_simulated_time() -> None:
    """PD3: all end with all of their tokens."""
    options = "--requests 60 --stream chat:2:30-200:100-200 --stream long:0.5:1500-3000:50-100 --token-ms 0.3"
    args = make_parser().parse_args([*options.split(), "--roles", "prefill,decode"])
    plan, whole = make_plan(args), list[bool]()
    plan.on_end = lambda turn: whole.append(len(turn.gaps) == turn.num_output - 1)
    plan.run()
    plan.scheduler.check_integrity()
    assert plan.num_done == 60 and all(whole)
    counts = plan.scheduler.handoffs.counts
    assert counts.num_by_role == counts.num_begun > 0 and counts.num_committed > 0
