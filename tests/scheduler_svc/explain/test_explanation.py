"""What the scheduler says of a request: where it is, who goes first, and the one reason why it does not run."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from scheduler_svc.admin.explanation_message import make_explanation
from scheduler_svc.core.explain.explanation import Explanation, explain, find_requests
from scheduler_svc.core.explain.obstacle import Reason
from scheduler_svc.core.explain.queue_place import Group, Order
from scheduler_svc.core.recovery.snapshot import WorkerSnapshot
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.order import Key
from scheduler_svc.core.state.requests.request import Request, RequestKey, RequestStatus
from scheduler_svc.core.state.requests.tenants import TenantLimits
from signalbox.cli.admin_client import admin_client
from signalbox.errors import InvalidRequestError
from signalbox.protocol.hash_chain import HASH_BYTES
from signalbox.v1 import admin_pb2
from tests.scheduler_svc.attached import serve
from tests.scheduler_svc.blocks.test_side_copies import hashes as host_hashes
from tests.scheduler_svc.blocks.test_side_copies import with_host_tier
from tests.scheduler_svc.harness import (
    MODEL,
    WORKER,
    make_info,
    make_request,
    make_scheduler,
    make_slot,
    report_for,
    run_step,
)
from tests.scheduler_svc.step.test_placement_load import OTHER, attach


def why(scheduler: Scheduler, name: str, now: float = 0.0) -> Explanation:
    """The explanation of the one request of that name. Making it changes nothing."""
    (request,) = find_requests(scheduler, name)
    explained = explain(scheduler, request, now)
    scheduler.check_integrity()
    return explained


def submit(
    scheduler: Scheduler, *names: str, num_prompt: int = 6, now: float = 0.0, **fields: object
) -> None:
    for name in names:
        scheduler.submit(make_request(name, num_prompt, **fields), now)


def full(**settings: Any) -> Scheduler:
    """A scheduler whose one place is taken by `a`, which decodes."""
    values: dict[str, Any] = {"max_num_seqs": 1, "max_inflight_steps": 1}
    scheduler = make_scheduler(**values | settings)
    submit(scheduler, "a", priority=5)
    run_step(scheduler)
    run_step(scheduler)
    return scheduler


# ---- requests that wait


def test_without_a_free_place_the_limit_is_named() -> None:
    scheduler = full()
    submit(scheduler, "b", "c", "d")
    explained = why(scheduler, "d", now=2.5)
    assert (explained.request.status, explained.reason) == (RequestStatus.WAITING, Reason.NO_PLACE)
    assert explained.sentence == "all 1 places of w are taken (max_num_seqs 1)"
    assert (explained.place.num_ahead, explained.waited_s, explained.progress) == (2, 2.5, None)
    assert explained.place.first is not None and explained.place.first.key.request_id == "b"
    assert why(scheduler, "b").place.num_ahead == 0


def test_when_nothing_keeps_it_the_next_step_takes_it() -> None:
    scheduler = make_scheduler()
    submit(scheduler, "a")
    assert why(scheduler, "a").reason is Reason.NEXT_STEP
    run_step(scheduler)
    assert why(scheduler, "a").reason is Reason.RUNS


def test_without_blocks_it_says_how_many_are_needed_and_free() -> None:
    scheduler = make_scheduler(num_blocks=10, max_inflight_steps=1, watermark_blocks_per_seq=1)
    submit(scheduler, "a", num_prompt=16)
    run_step(scheduler)
    submit(scheduler, "big", num_prompt=24)
    assert scheduler.schedule(WORKER, 0.0) is not None
    explained = why(scheduler, "big")
    assert explained.reason is Reason.NO_BLOCKS
    assert (
        explained.sentence
        == "it needs 6 more blocks and 1 to spare for those that run on w; 5 of 10 are free"
    )


def test_blocks_that_it_would_share_are_not_needed() -> None:
    hashes = os.urandom(6 * HASH_BYTES)
    scheduler = make_scheduler(num_blocks=10, max_inflight_steps=1, watermark_blocks_per_seq=0)
    submit(scheduler, "a", num_prompt=25, hashes=hashes)
    run_step(scheduler)
    submit(scheduler, "b", num_prompt=25, hashes=hashes)
    assert why(scheduler, "b").reason is Reason.NEXT_STEP
    submit(scheduler, "other", num_prompt=25)
    assert "needs 7 more blocks on w; 3 of 10" in why(scheduler, "other").sentence


def test_a_request_that_does_not_fit_holds_up_those_behind_it() -> None:
    scheduler = make_scheduler(num_blocks=10, max_inflight_steps=1, watermark_blocks_per_seq=0)
    submit(scheduler, "a", num_prompt=16)
    run_step(scheduler)
    submit(scheduler, "big", num_prompt=30)
    submit(scheduler, "small")
    explained = why(scheduler, "small")
    assert explained.reason is Reason.OTHERS_AHEAD
    assert explained.sentence.startswith("request big goes first, and waits itself: it needs 8 more blocks")
    assert run_step(scheduler).placed == [], "and it is so"


def test_a_step_full_of_prompts_is_the_token_budget() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=8, max_inflight_steps=1)
    submit(scheduler, "a", num_prompt=40)
    run_step(scheduler)
    submit(scheduler, "b")
    explained = why(scheduler, "b")
    assert explained.reason is Reason.TOKEN_BUDGET
    assert "max_num_batched_tokens 8" in explained.sentence and "the rest for 1 prompts" in explained.sentence


def test_a_step_kept_short_for_a_higher_class_is_named() -> None:
    scheduler = make_scheduler(
        policy="priority", lower_class_prefill_tokens=8, max_num_batched_tokens=64, max_inflight_steps=1
    )
    submit(scheduler, "high", priority=0)
    run_step(scheduler)
    submit(scheduler, "low", priority=1, num_prompt=40)
    run_step(scheduler)
    submit(scheduler, "next", priority=1)
    explained = why(scheduler, "next")
    assert explained.reason is Reason.TOKEN_BUDGET
    assert "full (lower_class_prefill_tokens 8, for a higher class is about)" in explained.sentence


def test_as_many_partial_prompts_as_may_be_is_named() -> None:
    scheduler = make_scheduler(
        max_num_partial_prefills=1, long_prefill_token_threshold=4, max_inflight_steps=1
    )
    submit(scheduler, "a", num_prompt=40)
    run_step(scheduler)
    submit(scheduler, "b")
    explained = why(scheduler, "b")
    assert explained.reason is Reason.TOKEN_BUDGET
    assert "max_num_partial_prefills 1" in explained.sentence


def test_without_a_slot_the_worker_s_number_is_named() -> None:
    scheduler = make_scheduler(num_slots=1, max_inflight_steps=1, max_num_seqs=1, max_num_batched_tokens=64)
    submit(scheduler, "a")
    run_step(scheduler)
    submit(scheduler, "b")
    assert why(scheduler, "b").sentence == "all 1 slots of w are taken (num_slots)"


def test_a_tenant_at_max_running_is_told_its_limit() -> None:
    scheduler = make_scheduler(max_inflight_steps=1)
    scheduler.queues.set_limits(TenantLimits(), {"t": TenantLimits(max_running=1)})
    submit(scheduler, "a", "b", tenant="t")
    run_step(scheduler)
    explained = why(scheduler, "b")
    assert explained.reason is Reason.TENANT_LIMIT
    assert explained.sentence == "max_running: tenant 't' has 1 of 1 requests running"
    submit(scheduler, "other", tenant="u")
    assert why(scheduler, "other").place.num_ahead == 0, "who may not start goes before nobody"


def test_a_tenant_without_tokens_is_told_when_it_has_some() -> None:
    scheduler = make_scheduler(max_inflight_steps=1)
    scheduler.queues.set_limits(TenantLimits(), {"t": TenantLimits(tokens_per_s=10.0)})
    submit(scheduler, "a", num_prompt=30, tenant="t")
    run_step(scheduler)
    submit(scheduler, "b", tenant="t")
    explained = why(scheduler, "b")
    assert explained.reason is Reason.TENANT_LIMIT
    assert explained.sentence == "tokens_per_s: tenant 't' waits 2.1 s for tokens"
    assert why(scheduler, "b", now=3.0).reason is Reason.NEXT_STEP


def test_better_classes_ahead_are_counted_by_class_and_tenant() -> None:
    scheduler = full(policy="priority", aging_s=0.0)
    submit(scheduler, "p1", "p2", priority=6, tenant="x")
    submit(scheduler, "p3", priority=6, tenant="y")
    submit(scheduler, "late", "later", priority=7)
    place = why(scheduler, "later").place
    assert place.ahead == (Group(6, "x", 2), Group(6, "y", 1), Group(7, "", 1))
    assert place.num_ahead == 4
    submit(scheduler, "urgent", priority=6, tenant="z")
    assert why(scheduler, "later").place.num_ahead == 5
    assert why(scheduler, "p1").place.num_ahead == 0


@pytest.mark.parametrize(
    "settings", [{}, {"policy": "deadline", "ttft_targets": "0:500"}, {"policy": "priority"}]
)
def test_of_many_ahead_only_some_are_looked_at(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = full(**settings)
    for number in range(200):
        submit(scheduler, f"before{number}")
    submit(scheduler, "last")
    (last,) = find_requests(scheduler, "last")
    place = explain(scheduler, last, 0.0, max_looked_at=300).place
    assert (place.num_ahead, place.is_cut) == (200, False)
    num_asked, key = 0, Order.key

    def ask(order: Order, request: Request) -> Key:
        nonlocal num_asked
        num_asked += 1
        return key(order, request)

    monkeypatch.setattr(Order, "key", ask)
    place = explain(scheduler, last, 0.0, max_looked_at=50).place
    assert (place.num_ahead, place.is_cut) == (50, True)
    assert place.first is not None and place.first.key.request_id == "before0"
    assert num_asked < 60


def test_with_deadlines_the_earlier_one_goes_before() -> None:
    scheduler = full(policy="deadline", ttft_targets="0:500,1:2000")
    submit(scheduler, "patient", priority=1)
    submit(scheduler, "hasty", priority=0)
    submit(scheduler, "none", priority=3)
    assert why(scheduler, "hasty").place.num_ahead == 0
    assert why(scheduler, "patient").place.num_ahead == 1
    assert why(scheduler, "none").place.num_ahead == 2


def test_who_has_risen_by_waiting_goes_before_the_class() -> None:
    scheduler = full(policy="priority", aging_s=10.0)
    submit(scheduler, "old", priority=7)
    submit(scheduler, "new", priority=6, now=12.0)
    assert why(scheduler, "new", now=12.0).place.num_ahead == 1
    assert why(scheduler, "old", now=12.0).place.num_ahead == 0
    assert why(scheduler, "new", now=5.0).place.num_ahead == 0
    submit(scheduler, "again", priority=6, now=12.0, arrival_ms=-1)
    assert why(scheduler, "again", now=12.0).place.num_ahead == 1, "though it came first"


def test_tenants_that_share_take_turns() -> None:
    scheduler = full(policy="fair")
    submit(scheduler, "x1", "x2", tenant="x")
    submit(scheduler, "y1", "y2", "y3", tenant="y")
    explained = why(scheduler, "x2")
    assert explained.place.ahead == (Group(0, "x", 1),)
    assert explained.place.turns == (Group(0, "y", 3),)


def test_the_tenant_that_has_had_less_is_next() -> None:
    scheduler = make_scheduler(max_num_seqs=1, max_inflight_steps=1, policy="fair", fair_credit=0.0)
    submit(scheduler, "x0", num_prompt=30, tenant="x", max_tokens=1)
    submit(scheduler, "x1", tenant="x")
    submit(scheduler, "y1", tenant="y")
    run_step(scheduler)
    first = why(scheduler, "x1").place.first
    assert first is not None and first.key.request_id == "y1"
    assert why(scheduler, "y1").place.first is None


def test_a_model_without_worker_is_refused_at_a_time_that_is_told() -> None:
    scheduler = make_scheduler(no_worker_grace_s=30.0)
    scheduler.submit(make_request("a", 6, model="other"), 10.0)
    explained = why(scheduler, "a", now=10.0)
    assert explained.reason is Reason.NO_WORKER
    assert "no worker serves the model 'other'; it is refused in 20.0 s" in explained.sentence


def test_why_each_worker_does_not_take_it_is_told() -> None:
    scheduler = make_scheduler()
    attach(scheduler)
    submit(scheduler, "a")
    scheduler.drain_worker(OTHER, True, 0.0)
    scheduler.detach_worker(WORKER, 0.0)
    explained = why(scheduler, "a")
    assert explained.reason is Reason.NO_WORKER
    assert explained.sentence == f"no worker takes it now: {WORKER} is away, {OTHER} is being drained"


def test_a_kind_that_a_worker_does_not_serve_is_named() -> None:
    scheduler = make_scheduler()
    info = replace(scheduler.workers[WORKER].info, worker_id=OTHER, serves_pooling=True)
    scheduler.attach_worker(info, None, 0.0)
    submit(scheduler, "a", is_pooling=True)
    scheduler.detach_worker(OTHER, 0.0)
    assert f"{WORKER} serves no pooling requests" in why(scheduler, "a").sentence


def test_who_waits_for_a_prefix_is_told_whose() -> None:
    hashes = os.urandom(3 * HASH_BYTES)
    scheduler = make_scheduler(max_inflight_steps=2)
    submit(scheduler, "leader", "follower", num_prompt=13, hashes=hashes)
    scheduler.schedule(WORKER, 0.0)
    explained = why(scheduler, "follower")
    assert explained.reason is Reason.PREFIX
    assert "request leader computes the first 4 tokens" in explained.sentence


def test_who_is_left_for_another_worker_is_told_for_how_long() -> None:
    hashes = os.urandom(8 * HASH_BYTES)
    scheduler = make_scheduler(
        max_inflight_steps=1,
        max_num_seqs=1,
        affinity_min_tokens=4,
        affinity_wait_ms=50.0,
        max_num_batched_tokens=64,
    )
    submit(scheduler, "a", num_prompt=33, hashes=hashes)
    run_step(scheduler)
    attach(scheduler)
    submit(scheduler, "b", num_prompt=33, hashes=hashes)
    assert scheduler.schedule(OTHER, 0.0) is None
    explained = why(scheduler, "b", now=0.02)
    assert explained.reason is Reason.AFFINITY
    assert "left for w, which has its prefix, for 30 ms more; there: all 1 places" in explained.sentence
    assert why(scheduler, "b", now=0.06).reason is Reason.NEXT_STEP


def test_one_too_many_that_wait_for_grammars() -> None:
    scheduler = make_scheduler(num_slots=4, max_inflight_steps=1)
    submit(scheduler, "g1", "g2", "g3", has_grammar=True)
    run_step(scheduler)
    explained = why(scheduler, "g3")
    assert explained.reason is Reason.GRAMMAR_TURN
    assert "half of its 4 slots" in explained.sentence


# ---- requests that a worker has


def test_a_prompt_and_an_output_in_the_making_are_told() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=8, max_inflight_steps=1)
    submit(scheduler, "a", num_prompt=20, max_tokens=50)
    run_step(scheduler)
    explained = why(scheduler, "a")
    assert (explained.reason, explained.sentence) == (Reason.RUNS, "w has computed 8 of its 20 tokens")
    for _ in range(4):
        run_step(scheduler)
    explained = why(scheduler, "a")
    assert explained.sentence == "w has made 3 of at most 50 output tokens"
    assert explained.progress is not None and explained.waited_s is None
    assert (explained.progress.num_computed, explained.progress.num_output) == (22, 3)


def test_a_grammar_in_the_making_is_told() -> None:
    scheduler = make_scheduler(max_inflight_steps=1, max_num_seqs=1)
    submit(scheduler, "g", has_grammar=True)
    run_step(scheduler)
    assert why(scheduler, "g").reason is Reason.GRAMMAR
    submit(scheduler, "a")
    run_step(scheduler)
    scheduler.grammar_ready(WORKER, 0, "g", 1)
    explained = why(scheduler, "g")
    assert (explained.request.status, explained.reason) == (RequestStatus.WAITING_FOR_FSM, Reason.NO_PLACE)


def test_a_slow_client_is_told() -> None:
    scheduler = full()
    scheduler.set_paused(RequestKey("f", "a"), 1, True)
    assert why(scheduler, "a").reason is Reason.CLIENT_PAUSED


def test_a_displaced_request_is_told_what_it_lacks() -> None:
    scheduler = full(policy="priority")
    submit(scheduler, "urgent", priority=0)
    run_step(scheduler)
    run_step(scheduler)
    explained = why(scheduler, "a", now=1.0)
    assert (explained.request.status, explained.reason) == (RequestStatus.RUNNING, Reason.DISPLACED)
    assert explained.sentence.endswith("keeps its blocks; all 1 places of w are taken (max_num_seqs 1)")
    assert explained.waited_s is not None


def test_a_preempted_request_is_told_what_it_lacks() -> None:
    scheduler = make_scheduler(num_blocks=8, max_inflight_steps=1, watermark_blocks_per_seq=0)
    submit(scheduler, "a", "b", num_prompt=14)
    while not scheduler.workers[WORKER].table.preempted:
        run_step(scheduler)
    explained = why(scheduler, "b")
    assert (explained.request.status, explained.reason) == (RequestStatus.PREEMPTED, Reason.PREEMPTED)
    assert explained.sentence.startswith("its blocks were taken; it needs ")
    submit(scheduler, "c")
    explained = why(scheduler, "c")
    assert explained.reason is Reason.OTHERS_AHEAD
    assert explained.sentence == "1 requests that w has taken go on first"


def test_of_two_that_are_to_go_on_the_second_is_told_the_first() -> None:
    scheduler = make_scheduler(max_inflight_steps=1)
    submit(scheduler, "a", "b", "c")
    run_step(scheduler)
    run_step(scheduler)
    scheduler.workers[WORKER].table.refused += [1, 2]  # rows were not run: their slots are preempted
    run_step(scheduler)
    assert why(scheduler, "b").sentence.endswith("nothing keeps it: it is for the next step")
    assert why(scheduler, "c").sentence.endswith("request b, which w has taken too, goes on first")
    assert why(scheduler, "c").place.ahead == (Group(0, "", 1),)
    submit(scheduler, "new")
    assert why(scheduler, "new").sentence == "2 requests that w has taken go on first"
    for name in ("b", "c"):
        scheduler.set_paused(RequestKey("f", name), 1, True)
    assert why(scheduler, "new").reason is Reason.NEXT_STEP, "who does not read is owed nothing"


def test_a_held_request_is_told_what_is_free() -> None:
    scheduler = make_scheduler(num_blocks=8, max_inflight_steps=1, watermark_blocks_per_seq=0)
    submit(scheduler, "short", num_prompt=14, max_tokens=3)
    submit(scheduler, "long", num_prompt=14)
    while not scheduler.workers[WORKER].table.held:
        run_step(scheduler)
    explained = why(scheduler, "long")
    assert explained.reason is Reason.NO_BLOCKS
    assert "its next token needs another block on w; " in explained.sentence
    submit(scheduler, "next")
    assert "1 running requests wait for one" in why(scheduler, "next").sentence


def test_a_worker_that_is_away_is_told() -> None:
    scheduler = full(worker_grace_s=10.0)
    scheduler.detach_worker(WORKER, 1.0)
    explained = why(scheduler, "a", now=4.0)
    assert explained.reason is Reason.WORKER_AWAY
    assert explained.sentence.startswith("w has been away for 3.0 s; after 10 s (worker_grace_s)")


def test_a_suspended_class_is_told_who_suspended_it() -> None:
    scheduler = make_scheduler(policy="priority", max_inflight_steps=1, max_num_seqs=4, aging_s=0.0)
    submit(scheduler, "runs", priority=2)
    run_step(scheduler)
    scheduler.set_safe_mode(1, 0.0)
    submit(scheduler, "waits", priority=2)
    for name, status in (("runs", RequestStatus.RUNNING), ("waits", RequestStatus.WAITING)):
        explained = why(scheduler, name)
        assert (explained.request.status, explained.reason) == (status, Reason.CLASS_SUSPENDED)
        assert (
            "its class 2 is suspended: safe mode keeps classes up to 1, by an operator" in explained.sentence
        )
    submit(scheduler, "other", priority=1)
    assert why(scheduler, "other").place.num_ahead == 0
    assert why(scheduler, "other").reason is Reason.NEXT_STEP
    submit(scheduler, "worse", priority=3)
    assert why(scheduler, "worse").place.ahead == (Group(1, "", 1),), "who is suspended goes before nobody"


def test_who_waits_for_copies_of_the_host_tier_is_told() -> None:
    scheduler, _ = with_host_tier(num_blocks=20)
    submit(scheduler, "r", num_prompt=26, hashes=host_hashes(1, 6))
    assert scheduler.schedule(WORKER, 0.0) is not None
    explained = why(scheduler, "r")
    assert explained.reason is Reason.HOST_COPIES
    assert explained.sentence == "6 blocks are being copied between w and its host tier"


# ---- which requests are meant


def test_choices_of_a_call_and_other_frontends_are_found() -> None:
    scheduler = make_scheduler()
    names = ["r", "r.1", "r:1", "r:1.2", "r1", "r.x", "rr", "x"]
    for name in names:
        submit(scheduler, name)
    scheduler.submit(make_request("r", 6, key=RequestKey("g", "r")), 0.0)
    found = [(r.key.frontend_instance, r.key.request_id) for r in find_requests(scheduler, "r")]
    assert found == [("f", "r"), ("f", "r.1"), ("f", "r:1"), ("f", "r:1.2"), ("g", "r")]


def test_asking_leaves_the_next_step_as_it_would_have_been() -> None:
    """Q6."""

    def decide(is_asked: bool) -> list[list[str]]:
        scheduler = make_scheduler(max_num_seqs=2, max_inflight_steps=1, policy="priority+fair", aging_s=5.0)
        placed = []
        for number in range(12):
            fields: dict[str, Any] = {"tenant": "xyz"[number % 3], "priority": number % 2}
            submit(scheduler, f"r{number}", max_tokens=2, now=float(number), **fields)
            if is_asked:
                for request in list(scheduler.requests.values()):
                    explain(scheduler, request, float(number))
            step = scheduler.schedule(WORKER, float(number))
            assert step is not None
            placed.append([request.key.request_id for request in step.placed])
            scheduler.update(WORKER, report_for(scheduler), float(number))
        return placed

    assert decide(True) == decide(False)


# ---- on the wire


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_and_status_has_a_word_on_the_wire(reason: Reason) -> None:
    request: Request = make_request("a", 6, arrival_ms=1000)
    message = make_explanation(Explanation(request, reason, "so"), 3500.0)
    assert admin_pb2.WaitReason.Name(message.reason) == f"WAIT_REASON_{reason.name}"
    assert message.status == admin_pb2.REQUEST_STATUS_WAITING
    assert (message.age_ms, message.HasField("waiting_ms"), message.model) == (2500, False, MODEL)


async def test_a_question_without_an_id_is_refused_and_an_unknown_one_finds_nothing() -> None:
    async with serve() as (_, address), admin_client(address) as link:
        assert not (await link.explain("nobody")).requests
        with pytest.raises(InvalidRequestError, match="a request has an id"):
            await link.explain("")


def test_one_that_a_worker_brought_back_running_does_not_wait() -> None:
    scheduler = make_scheduler()
    scheduler.detach_worker(WORKER, 0.0)
    scheduler.attach_worker(make_info(), WorkerSnapshot(0, 5, [make_slot()]), 1.0)
    assert why(scheduler, "long", now=100.0).waited_s is None
