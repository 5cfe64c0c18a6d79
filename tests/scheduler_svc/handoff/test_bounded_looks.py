"""HO22: a look asks for a bounded number of requests and targets, and everybody has a turn in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from scheduler_svc.core.moves.desk import HandoffDesk
from scheduler_svc.core.moves.targets import MAX_ASKED, MAX_LOOKED_AT, MAX_LOOKED_AT_IN_ALL, Targets
from scheduler_svc.core.parts.handoff.part import handoffs_of
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import WorkerRole
from tests.scheduler_svc.handoff.pair import Pair
from tests.scheduler_svc.harness import make_request

NUM_SOURCES, NUM_TARGETS, NUM_ROWS = 5, 12, 80


def make_ring(role: WorkerRole) -> Pair:
    """Sources full of rows, and more targets than are asked, none of which has a block."""
    ring = Pair(attach=False, max_num_seqs=256, max_num_batched_tokens=4096, resume_elsewhere=True)
    ring.fields |= {"num_slots": 128, "num_blocks": 512, "max_num_batched_tokens": 4096}
    for number in range(NUM_SOURCES):
        source = ring.attach(f"source{number}", role=WorkerRole.BOTH if role is WorkerRole.BOTH else role)
        for row in range(NUM_ROWS):
            ring.core.submit(make_request(f"r{number}/{row}", 8), 0.0)
        ring.step(f"source{number}")
        ring.step(f"source{number}")
        assert source.table.num_running == NUM_ROWS
        source.draining = True
    for worker in list(ring.core.workers.values()):
        worker.draining = role is WorkerRole.BOTH
    target_role = WorkerRole.BOTH if role is WorkerRole.BOTH else WorkerRole.DECODE
    for number in range(NUM_TARGETS):
        target = ring.attach(f"target{number}", role=target_role)
        target.pool.take(target.pool.num_available)
    return ring


@contextmanager
def counting(patch: pytest.MonkeyPatch) -> Iterator[Counter[tuple[str, str]]]:
    """How often each request was asked about, by (source, request id)."""
    asked: Counter[tuple[str, str]] = Counter()
    real = HandoffDesk.has_room

    def has_room(desk: HandoffDesk, request: Request, source: Worker, target: Worker) -> bool:
        asked[source.info.worker_id, request.key.request_id] += 1
        return real(desk, request, source, target)

    patch.setattr(HandoffDesk, "has_room", has_room)
    yield asked


@pytest.mark.parametrize("role", [WorkerRole.PREFILL, WorkerRole.BOTH], ids=["roles", "drain"])
def test_a_look_is_bounded_and_everybody_has_a_turn(
    role: WorkerRole, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = make_ring(role)
    policies, seen = ring.core.policies, set[tuple[str, str]]()
    policies.next_look = 1e9
    with counting(monkeypatch) as asked:
        for number in range(10):
            asked.clear()
            if role is WorkerRole.BOTH:
                policies.tick(100.0 + number)
            else:
                policies.disaggregation.look(100.0 + number)
            assert asked and len(asked) <= MAX_LOOKED_AT_IN_ALL and max(asked.values()) <= MAX_ASKED
            assert max(Counter(source for source, _ in asked).values()) <= MAX_LOOKED_AT
            seen |= asked.keys()
    assert len(seen) == NUM_SOURCES * NUM_ROWS


def test_a_place_that_is_taken_counts_at_once() -> None:
    """HO14: among targets with as much room, requests are spread."""
    ring = Pair(attach=False)
    workers = [ring.attach(name) for name in "abc"]
    found = Targets(workers[1:], ring.core.handoffs, spares_full=False)
    requests = [ring.submit(f"r{number}", 8, at="a") for number in range(4)]
    order = []
    for request in requests:
        target = found.best_for(request, workers[0], 0.0)
        assert target is not None
        ring.core.handoffs.begin(request, workers[0], target, 0.0)
        found.took(target)
        order.append(target.info.worker_id)
    assert order == ["b", "c", "b", "c"]


def test_prompts_that_are_handed_over_do_not_end_the_turn_of_older_rows() -> None:
    """HO22: 40 rows decode at a source, the first 33 have to stay, and new prompts go all the time."""
    ring = Pair(attach=False, max_num_seqs=256, max_num_batched_tokens=4096, max_handoffs_per_worker=8)
    ring.fields |= {"num_slots": 128, "num_blocks": 512, "max_num_batched_tokens": 4096}
    source = ring.attach("source", role=WorkerRole.PREFILL)
    core, old = ring.core, [make_request(f"old{number}", 8, max_tokens=1000) for number in range(40)]
    for request in old:
        core.submit(request, 0.0)
    ring.step("source")
    ring.step("source")
    for number, request in enumerate(old):
        request.history.no_handoff_before = 1e9 if number <= MAX_LOOKED_AT else 0.0
    ring.attach("target", role=WorkerRole.DECODE)
    roles, moved = core.policies.disaggregation, set[str]()
    for number in range(2):
        new = make_request(f"new{number}", 8, max_tokens=1000)
        core.submit(new, 1.0)
        ring.step("source", 1.0)
        roles.look_at(source, [new], 1.0)
        roles.look(1.0)
        for handoff in list(handoffs_of(source).exports.values()):
            moved.add(handoff.request.key.request_id)
            core.handoffs.stop(handoff, "stopped", 1.0)
    assert {"old33", "old39"} <= moved
