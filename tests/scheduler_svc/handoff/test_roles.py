"""Prompts go where they are computed, and what decodes goes to where others decode, if that pays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler_svc.core.explain.explanation import explain
from scheduler_svc.core.roles.forecast import Forecast
from scheduler_svc.core.roles.interference import StepLoad, prefill_cost_s, weigh_move
from signalbox.benchmarks.scheduler.plan import make_parser, make_plan
from signalbox.protocol.enums import WorkerRole
from tests.scheduler_svc.handoff.pair import A, B, Pair
from tests.scheduler_svc.harness import make_request

QUIET = StepLoad(2, 0.0, 0, 0.01, 0.001, 512)


def with_roles(**settings: Any) -> Pair:
    """A computes prompts, and B decodes."""
    pair = Pair(attach=False, **settings)
    pair.fields["num_blocks"] = 256
    pair.attach(A, role=WorkerRole.PREFILL)
    pair.attach(B, role=WorkerRole.DECODE)
    return pair


def foretell(pair: Pair, prefill_tokens_per_s: int) -> None:
    """Steps take 10 ms, and 1 ms per token, and A has had so many prompt tokens per second."""
    for worker in (pair.a, pair.b):
        worker.forecast.token_s, worker.forecast.base_s = 0.001, 0.01
    pair.a.forecast.look(0, 0.0)
    pair.a.forecast.look(prefill_tokens_per_s, 1.0)


@pytest.mark.parametrize(
    ("source", "price_s", "pays"),
    [
        (QUIET, 0.0, False),  # one row more there than here
        (replace(QUIET, prefill_share=0.5), 0.05, True),
        (replace(QUIET, prefill_share=0.5), 50.0, False),
        (replace(QUIET, num_prefill_ahead=2000), 0.05, True),
        (replace(QUIET, num_prefill_ahead=30), 0.05, False),
        (replace(QUIET, num_rows=40), 0.05, True),
        (replace(QUIET, prefill_share=0.5, token_s=0.0), 0.05, True),  # nothing is known: as the role says
    ],
)
def test_a_move_pays_where_prompts_cost_more(source: StepLoad, price_s: float, pays: bool) -> None:
    """PD4"""
    assert weigh_move(100, source, QUIET, price_s).pays is pays


def test_no_move_pays_both_ways() -> None:
    """PD4: whatever two workers have, of a move and the move back one does not pay, for nothing even."""
    busy = replace(QUIET, prefill_share=0.3, num_rows=5)
    for one, other in ((QUIET, busy), (QUIET, QUIET), (busy, busy)):
        assert not (weigh_move(100, one, other, 0.0).pays and weigh_move(100, other, one, 0.0).pays)


def test_a_prompt_costs_itself_and_each_row_its_time() -> None:
    """PD2"""
    assert prefill_cost_s(100, 0, replace(QUIET, num_rows=0)) == pytest.approx(0.1)
    assert prefill_cost_s(100, 40, replace(QUIET, num_rows=3, num_prefill_ahead=60)) == pytest.approx(0.5)


def test_the_share_of_prompts_fades() -> None:
    """PD4: they take half of the time, and ten seconds later a fifth as much at most."""
    forecast = Forecast()
    forecast.token_s = 0.001
    forecast.look(1000, 0.0)
    for second in range(1, 31):
        forecast.look(1000 + 500 * second, float(second))
    assert forecast.prefill_share == pytest.approx(0.5)
    forecast.look(16_000, 60.0)
    assert 0 < forecast.prefill_share < 0.1


@pytest.mark.parametrize("way", ["conditional", "always", "never"])
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


def test_a_short_prompt_is_computed_where_it_costs_less() -> None:
    """PD2: behind a long one it would wait, and nobody waits for it where nobody decodes."""
    pair = with_roles(max_num_batched_tokens=64)
    foretell(pair, 0)
    long, short = make_request("long", 600), make_request("short", 20)
    pair.core.submit(long, 0.0)
    pair.core.schedule(A, 0.0)
    pair.core.submit(short, 0.0)
    pair.step(B)
    assert (long.worker_id, short.worker_id) == (A, B)


@pytest.mark.parametrize(("wait_s", "taker"), [(0.5, B), (0.6, None)])
def test_a_prompt_beside_rows_waits_its_time(wait_s: float, taker: str | None) -> None:
    """PD2: 536 tokens, 1 ms each, are ahead of it at A."""
    pair = with_roles(max_num_batched_tokens=64, prefill_wait_s=wait_s)
    foretell(pair, 0)
    row = pair.submit("row", 40, at=B)
    pair.step(B)
    assert row.worker_id == B and len(pair.b.table.decode_slots) + len(pair.b.table.settling) == 1
    long, short = make_request("long", 600), make_request("short", 20)
    pair.core.submit(long, 0.0)
    pair.core.schedule(A, 0.0)
    pair.core.submit(short, 0.0)
    pair.step(B)
    assert (long.worker_id, short.worker_id) == (A, taker)


@pytest.mark.parametrize(
    ("way", "prefill_tokens_per_s", "moves"),
    [("always", 0, True), ("never", 900, False), ("conditional", 900, True), ("conditional", 0, False)],
)
def test_behind_its_prompt_a_request_goes_to_who_decodes(
    way: str, prefill_tokens_per_s: int, moves: bool
) -> None:
    """PD3, PD4: and whoever asks hears why."""
    pair = with_roles(prefill_hand_off=way)
    foretell(pair, prefill_tokens_per_s)
    request = pair.submit("r", 40)
    pair.core.policies.next_look = 1e9
    pair.core.policies.reported(pair.a, [request], 2.0)
    assert (request.handoff is not None) is moves
    pair.core.check_integrity()
    pair.step(A, 2.0)  # behind it the request is a row
    sentence = explain(pair.core, request, 2.0).sentence
    assert ("behind its prompt" in sentence) is moves
    assert ("does not pay" in sentence) is (way == "conditional" and not moves)
    assert pair.core.handoffs.counts.num_by_role == moves


def test_what_moves_before_steps_are_known_says_so() -> None:
    """PD4: no figure is told that nobody has."""
    pair = with_roles()
    request = pair.submit("r", 40)
    pair.core.policies.next_look = 1e9
    pair.core.policies.reported(pair.a, [request], 2.0)
    assert request.handoff is not None
    pair.step(A, 2.0)
    sentence = explain(pair.core, request, 2.0).sentence
    assert "what a step takes is not known yet" in sentence and "inf" not in sentence


def test_a_role_is_the_process_own_until_somebody_says_another() -> None:
    """PD1: it outlives a link, and no process."""
    pair = with_roles()
    pair.b.role = WorkerRole.BOTH
    pair.attach(B, role=WorkerRole.DECODE)
    assert pair.b.role is WorkerRole.BOTH
    pair.attach(B, role=WorkerRole.DECODE, instance="another")
    assert pair.b.role is WorkerRole.DECODE


@pytest.mark.parametrize("way", ["always", "conditional"])
def test_prompts_and_decoding_are_apart_in_simulated_time(way: str) -> None:
    """PD3: all end with all of their tokens."""
    options = "--requests 60 --stream chat:2:30-200:100-200 --stream long:0.5:1500-3000:50-100 --token-ms 0.3"
    args = make_parser().parse_args(
        [*options.split(), "--roles", "prefill,decode", "--prefill-hand-off", way]
    )
    plan, whole = make_plan(args), list[bool]()
    plan.on_end = lambda turn: whole.append(len(turn.gaps) == turn.num_output - 1)
    plan.run()
    plan.scheduler.check_integrity()
    assert plan.num_done == 60 and all(whole)
    counts = plan.scheduler.handoffs.counts
    assert counts.num_by_role == counts.num_begun > 0 and counts.num_committed > 0
