"""What a scheduler makes of a prompt whose beginning another worker has in its cache (PB)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler_svc.core.explain.explanation import explain
from scheduler_svc.core.parts.pulls.pace import STALE_S, PullPace
from scheduler_svc.core.parts.pulls.part import PULLS, must_pull
from scheduler_svc.core.parts.pulls.pull import PullOrders
from scheduler_svc.core.state.requests.request import Request, RequestKey, RequestStatus
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.step.report import DivergenceError
from scheduler_svc.links.codec.delta import build_step
from scheduler_svc.links.codec.events import take_event
from signalbox.protocol.enums import ReadFault, WorkerHealth
from signalbox.protocol.hash_chain import chain_hashes, root_hash
from signalbox.v1 import from_worker_pb2
from tests.scheduler_svc.handoff.pair import A, B, Pair
from tests.scheduler_svc.harness import MODEL, make_request

NUM_PROMPT = 25
"""Six blocks of four, and one token."""
NUM_BLOCKS = 6


def names(num_prompt: int = NUM_PROMPT, first: int = 1) -> bytes:
    tokens = np.arange(first, first + num_prompt, dtype="<i4")
    return chain_hashes(root_hash(MODEL), tokens.tobytes(), 4)


class Pulls(Pair):
    """A has computed a prompt, and B is to have the next request with it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(attach=False, **({"affinity_min_tokens": 4, "affinity_wait_ms": 0.0} | settings))
        self.fields["pulls_blocks"] = True
        for name in (A, B):
            self.attach(name)

    def compute(self, **fields: Any) -> Request:
        """A computes the prompt."""
        request = self.submit("first", NUM_PROMPT, hashes=names(), max_tokens=50, **fields)
        self.step(A)
        assert self.a.pool.prefix_length(self.a.names_of(request).hashes) == NUM_BLOCKS
        return request

    def comes_back(self, *, checks: bool = True) -> tuple[Request, StepDecision]:
        """The prompt comes again, to B. checks: as `step`."""
        request = make_request("again", NUM_PROMPT, hashes=names(), max_tokens=50)
        self.a.draining = True
        self.core.submit(request, 0.0)
        step = self.step(B) if checks else self.core.schedule(B, 0.0)
        assert step is not None
        return request, step

    def ended(self, step_id: int, name: str = B, **fields: Any) -> None:
        """What the target says."""
        message = from_worker_pb2.BlockPullEnded(
            step_id=step_id, duration_us=1000, block_ns=np.array([100_000], "<u4").tobytes()
        )
        message.MergeFrom(from_worker_pb2.BlockPullEnded(**fields))
        take_event(self.core, name, from_worker_pb2.WorkerEvent(block_pull_ended=message), 1.0)
        self.core.check_integrity()


def begins_pull(step: StepDecision) -> bool:
    """The step has blocks read from another worker."""
    return step.fetch is not None and step.fetch.source == PULLS


def test_the_beginning_of_a_prompt_is_read_from_where_it_is() -> None:
    """PB1, PB2, PB3: from a worker that drains, behind a fence; and then the request starts as if it had been here."""
    pair = Pulls()
    pair.compute()
    request, step = pair.comes_back()
    assert request.status is RequestStatus.WAITING and begins_pull(step)
    down = build_step(step, 1).pulls.pull
    assert (down.source.worker_id, down.source.worker_instance, down.address) == (A, "ia", "a:1")
    shown = pair.step(A)
    assert shown is not None
    [export] = build_step(shown, 1).pulls.exports
    assert (export.number, export.key, export.target.worker_id) == (down.number, down.key, B)
    assert len(np.frombuffer(export.block_ids, "<u4")) == len(np.frombuffer(down.block_ids, "<u4"))
    held = must_pull(pair.a).shown[down.number][0]
    assert (pair.a.pool.ref_counts[held] >= 1).all() and len(held) == NUM_BLOCKS
    pair.ended(step.step_id)
    started = pair.step(B)
    assert started is not None and request.history.num_cached_tokens == 4 * NUM_BLOCKS
    assert pair.core.handoffs.pulls.counts.num_tokens == 4 * NUM_BLOCKS
    over = pair.step(A)
    assert over is not None
    assert np.frombuffer(build_step(over, 1).pulls.ended_exports, "<u8").tolist() == [down.number]
    assert not must_pull(pair.a).shown


def test_whoever_asks_hears_what_it_waits_for() -> None:
    """PB2: `signalbox status REQUEST`."""
    pair = Pulls()
    pair.compute()
    request, _ = pair.comes_back()
    sentences = explain(pair.core, request, 0.0).sentence
    assert f"{NUM_BLOCKS} cached blocks are being read from worker a" in sentences


def test_what_does_not_come_is_computed() -> None:
    """PB5: once, and nothing of it can be found."""
    pair = Pulls()
    pair.compute()
    request, step = pair.comes_back()
    pair.ended(step.step_id, error={"message": "no"})
    assert pair.b.pool.prefix_length(pair.b.names_of(request).hashes) == 0
    started = pair.step(B)
    assert started is not None and not begins_pull(started) and request.status is RequestStatus.RUNNING
    assert request.history.num_cached_tokens == 0
    assert pair.core.handoffs.pulls.counts.failed["target"] == 1


@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        ({"pulls_blocks": False}, {}),
        ({"kv_layout": "another"}, {}),
        ({"kv_layout": ""}, {}),
        ({}, {"pull_prefixes": False}),
        ({}, {"enable_prefix_caching": False}),
        ({}, {"affinity_min_tokens": 4 * NUM_BLOCKS + 1}),
    ],
)
def test_who_does_not_pull_hears_nothing_of_it(fields: Any, settings: Any) -> None:
    """PB1, PB7, PB8."""
    pair = Pulls(**settings)
    pair.attach(B, instance="other", **fields)
    if settings.get("enable_prefix_caching", True):
        pair.compute()
    else:
        pair.submit("first", NUM_PROMPT, hashes=names(), max_tokens=50)
    request, step = pair.comes_back()
    assert not begins_pull(step) and request.status is RequestStatus.RUNNING
    message = build_step(step, 1)
    assert not message.HasField("pulls")


def test_what_is_held_for_others_is_little_of_what_there_is() -> None:
    """PB3: a quarter of what the source has to spare."""
    pair = Pulls()
    first = pair.compute()
    pair.core.cancel(first.key, 1)
    pair.step(A)
    taken = pair.a.pool.take(pair.a.pool.num_available - 4 * NUM_BLOCKS + 1)
    request, step = pair.comes_back(checks=False)
    assert not begins_pull(step) and request.status is RequestStatus.RUNNING
    pair.a.pool.release(taken)


def test_a_step_begins_one_pull() -> None:
    """PB2: the next request with other blocks waits for the next step; who lacks the same waits for the same."""
    pair = Pulls()
    pair.compute()
    other = make_request("other", NUM_PROMPT, hashes=names(first=200), max_tokens=50)
    pair.b.draining = True
    pair.core.submit(other, 0.0)
    pair.step(A)
    pair.step(A)
    pair.b.draining = False
    again = [make_request(f"r{n}", NUM_PROMPT, hashes=names(), max_tokens=50) for n in range(2)]
    third = make_request("r3", NUM_PROMPT, hashes=names(first=200), max_tokens=50)
    pair.a.draining = True
    must_pull(pair.b).pace.token_us = 1e6
    must_pull(pair.b).pace.pulled(A, 1000.0, [100.0], 0.0)
    for request in (*again, third):
        pair.core.submit(request, 0.0)
    first = pair.step(B)
    assert first is not None and first.fetch is not None
    assert again[1].history.fence is first.fetch and third.history.fence is None
    assert third.status is RequestStatus.WAITING
    pair.ended(first.step_id)
    second = pair.step(B)
    assert second is not None and begins_pull(second)
    assert third.history.fence is second.fetch
    assert {request.status for request in again} == {RequestStatus.RUNNING}


@pytest.mark.parametrize("name", [A, B])
def test_the_end_of_either_link_lets_go_of_both_ends(name: str) -> None:
    """PB3, PB5: and what the other one says later is of an older link."""
    pair = Pulls()
    pair.compute()
    request, step = pair.comes_back()
    pair.step(A)
    pair.core.detach_worker(name, 0.0)
    pair.core.check_integrity()
    assert not must_pull(pair.a).shown
    if name == B:
        over = pair.step(A)
        assert over is not None and over.order(PullOrders).ended
        pair.attach(B)
        assert not pair.b.fences
    pair.ended(step.step_id, error={"message": "its source is gone"})
    assert not pair.core.handoffs.pulls.pairs.has_any
    pair.step(B)
    assert request.status is RequestStatus.RUNNING and request.history.num_cached_tokens == 0


def test_what_was_not_told_is_not_ended() -> None:
    """PB3: a source that has heard of nothing hears of no end."""
    pair = Pulls()
    pair.compute()
    _, step = pair.comes_back()
    pair.ended(step.step_id)
    told = pair.step(A)
    assert told is not None and told.ordered(PullOrders) is None


def test_what_is_withdrawn_meanwhile_is_not_published() -> None:
    """PB6, N2."""
    pair = Pulls()
    first = pair.compute()
    request, step = pair.comes_back()
    slot = first.slot
    assert slot is not None
    pair.core.schedule(A, 0.0)
    pair.report(A, withdrawn=[slot], finished=[(slot, 4, 1)])
    pair.ended(step.step_id)
    assert pair.b.pool.prefix_length(pair.b.names_of(request).hashes) == 0


def test_what_is_withdrawn_later_is_forgotten_where_it_was_pulled() -> None:
    """PB6, N2: whoever has gone on from it there starts anew."""
    pair = Pulls()
    first = pair.compute()
    request, step = pair.comes_back()
    pair.ended(step.step_id)
    pair.step(B)
    assert request.status is RequestStatus.RUNNING
    slot = first.slot
    assert slot is not None
    pair.core.schedule(A, 0.0)
    pair.report(A, withdrawn=[slot], finished=[(slot, 4, 1)])
    pair.core.check_integrity()
    assert pair.b.pool.prefix_length(pair.b.names_of(request).hashes) == 0
    assert request.status is not RequestStatus.RUNNING


def test_what_was_pulled_ahead_of_a_reset_is_not_found_behind_it() -> None:
    """PB6, C7."""
    pair = Pulls()
    pair.compute()
    request, step = pair.comes_back()
    pair.core.reset_prefix_cache()
    pair.ended(step.step_id)
    assert pair.b.pool.prefix_length(pair.b.names_of(request).hashes) == 0


def test_what_is_sooner_computed_is_not_pulled() -> None:
    """PB7: as measured by the last pull from there, and forgotten after a minute."""
    pair = Pulls()
    pair.compute()
    pace = must_pull(pair.b).pace
    pace.token_us = 10.0
    pace.pulled(A, 5000.0, [100.0], 0.0)
    request, step = pair.comes_back()
    assert not begins_pull(step) and request.status is RequestStatus.RUNNING
    assert not pace.of(A, STALE_S + 1).is_measured([1])
    assert not pace.of("c", 0.0).is_measured([1])


def test_what_is_not_known_is_tried_by_one_pull_at_a_time() -> None:
    """PB7: the others compute meanwhile."""
    pair = Pulls()
    pair.compute()
    pair.b.draining = True
    pair.core.submit(make_request("other", NUM_PROMPT, hashes=names(first=200), max_tokens=50), 0.0)
    pair.step(A)
    pair.b.draining = False
    pair.a.draining = True
    requests = [
        make_request(f"r{first}", NUM_PROMPT, hashes=names(first=first), max_tokens=50) for first in (1, 200)
    ]
    for request in requests:
        pair.core.submit(request, 0.0)
    step = pair.step(B)
    assert step is not None and begins_pull(step)
    assert [request.status for request in requests] == [RequestStatus.WAITING, RequestStatus.RUNNING]


def test_what_was_measured_last_counts_most() -> None:
    """PB7."""
    pace = PullPace()
    pace.computed(128, 0, 12_800)
    assert pace.token_us == 100
    pace.computed(10, 0, 1)
    pace.computed(128, 64, 1)
    assert pace.token_us == 100, "steps that say little of what a token costs"
    pace.pulled(A, 2000.0, [10.0, 0.0], 0.0)
    pace.pulled(A, 2000.0, [20.0, 5.0], 1.0)
    known = pace.of(A, 1.0)
    assert known.block_us == pytest.approx((13.0, 5.0)) and known.is_measured([3, 1])
    pace.pulled(A, 2000.0, [40.0], STALE_S + 2)
    assert pace.of(A, STALE_S + 2).block_us == (40.0,)


def test_news_that_cannot_be_read_close_the_link() -> None:
    pair = Pulls()
    pair.compute()
    _, step = pair.comes_back()
    message = from_worker_pb2.BlockPullEnded(step_id=step.step_id, block_ns=b"abc")
    with pytest.raises(DivergenceError, match="of a pull"):
        take_event(pair.core, B, from_worker_pb2.WorkerEvent(block_pull_ended=message), 0.0)


@pytest.mark.parametrize(
    ("fault", "is_left_out"),
    [(ReadFault.WITHDRAWN, False), (ReadFault.PAIR, True), (ReadFault.UNSPECIFIED, True), (99, True)],
)
def test_what_its_source_withdraws_leaves_no_pair_out(fault: int, is_left_out: bool) -> None:
    """PB9: its link may have ended, which the scheduler notices later; a failure of unknown fault is the pair's."""
    pair = Pulls()
    pair.compute()
    _, step = pair.comes_back()
    pair.ended(step.step_id, error={"message": "it is over"}, fault=fault)
    pulls = pair.core.handoffs.pulls
    assert pulls.pairs.has_any == is_left_out and pulls.counts.failed == {"target": 1}


def test_a_failure_leaves_no_pair_out_while_the_source_is_silent() -> None:
    """PB9: it may have withdrawn its blocks, and its target saw a channel close."""
    pair = Pulls()
    pair.compute()
    _, step = pair.comes_back()
    pair.a.vitals.heard_at, pair.b.vitals.heard_at = 0.0, 5.0
    pair.core.tick(5.0)
    assert pair.a.health is WorkerHealth.SILENT
    pair.ended(step.step_id, error={"message": "the other end has closed the channel"})
    assert not pair.core.handoffs.pulls.pairs.has_any


def test_a_source_that_cannot_be_read_from_is_left_out_for_a_while() -> None:
    """PB9: for 1 s, 2 s, and so on; a pull that comes ends it."""
    pair = Pulls()
    pair.compute()
    pulls = pair.core.handoffs.pulls

    def pulls_at(name: str, now: float) -> int:
        """The step that begins to pull for a new request; 0: it is computed."""
        request = make_request(name, NUM_PROMPT, hashes=names(), max_tokens=1)
        pair.core.submit(request, now)
        step = pair.step(B, now)
        assert step is not None
        begun = step.step_id if begins_pull(step) else 0
        if not begun:
            pair.core.cancel(request.key, 1)
            pair.step(B, now)
            pair.b.reset_cache()
        return begun

    _, step = pair.comes_back()
    pair.ended(step.step_id, error={"message": "nothing answers at a:1"})
    [told] = pair.core.handoffs.take_news()
    assert "worker b cannot read from worker a" in told and "nothing answers" in told
    assert [each.target_id for each in pulls.pairs.left_out()] == [B]
    pair.core.cancel(RequestKey("f", "again"), 1)
    pair.step(B)
    pair.b.reset_cache()
    assert not pulls_at("soon", 1.5), "it is tried again at once"
    begun = pulls_at("later", 2.5)
    assert begun
    pair.ended(begun)
    assert not pulls.pairs.has_any
