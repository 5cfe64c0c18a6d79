"""Suspects of a crash in random scenarios: they run alone in flight, and nothing else changes (docs/liveness.md, S2).

Some requests come as suspects; drafts, prefix sharing, grammars, preemption, pauses, displacement, host copies and
faults are those of the random scenarios.
"""

from __future__ import annotations

import zlib

import pytest

from scheduler_svc.core.cluster.register import Register
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.slots.slot_state import ENDED
from tests.pairs import ALL_COMBINATIONS
from tests.simulation.random_scenario import Scenario
from tests.simulation.ring.hunt import Found, try_plot
from tests.simulation.ring.profiles import PROFILES
from tests.simulation.ring.scenario import draw

NUM_SEEDS = 12 if ALL_COMBINATIONS else 3


def make_suspect(request: Request, share: int) -> None:
    """By its name, so that a seed reproduces."""
    request.num_crashes = int(zlib.crc32(request.key.request_id.encode()) % 100 < share)


def check_solitude(scheduler: Scheduler) -> int:
    """Asserts that suspects are alone in their steps, and in flight; returns the number of those that are."""
    count = 0
    for worker in scheduler.workers.values():
        for record in worker.records:
            slots = [*(chunk.slot for chunk in record.chunks), *record.decode_slots.tolist()]
            slots = [slot for slot in slots if worker.table.state[slot] not in ENDED]
            if any(worker.request(slot).num_crashes for slot in slots):
                assert record.is_solo and len(worker.records) == 1, "a suspect is not alone in flight"
                assert len(slots) == 1 and not record.num_decode_rows, "a suspect is not alone in its step"
                count += 1
    return count


@pytest.fixture
def solos(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps in which suspects ran alone, as far as they were looked at; `share` percent are suspects."""
    seen = [0]
    check = Scheduler.check_integrity

    def check_all(self: Scheduler) -> None:
        check(self)
        seen[0] += check_solitude(self)

    monkeypatch.setattr(Scheduler, "check_integrity", check_all)
    return seen


def mark(monkeypatch: pytest.MonkeyPatch, share: int) -> None:
    submit, add_orphan = Scheduler.submit, Register.add_orphan

    def submit_marked(self: Scheduler, request: Request, now: float) -> None:
        make_suspect(request, share)
        submit(self, request, now)

    def add_marked(self: Register, request: Request, now: float) -> None:
        make_suspect(request, share)
        add_orphan(self, request, now)

    monkeypatch.setattr(Scheduler, "submit", submit_marked)
    monkeypatch.setattr(Register, "add_orphan", add_marked)


@pytest.mark.sampled
@pytest.mark.timeout(300)
@pytest.mark.parametrize("share", [15, 50, 100])
def test_suspects_run_alone_and_all_rules_hold(
    share: int, solos: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2, S3."""
    mark(monkeypatch, share)
    for seed in range(NUM_SEEDS):
        for inflight, drafts in ((1, 0), (2, 1), (4, 4)):
            try:
                Scenario(seed, inflight, drafts).run()
            except Exception as error:
                error.add_note(
                    f"reproduce with {share} % suspects and Scenario({seed}, {inflight}, {drafts}).run()"
                )
                raise
    assert solos[0] > 100, "the scenarios have no suspects"


@pytest.mark.parametrize("seed", [4997, 6484])
def test_a_suspect_and_others_do_not_wait_for_each_other(seed: int) -> None:
    """S2, WB2: each had a part of a window's blocks, and no step in which the other could give them up."""
    outcome = try_plot(draw(seed, PROFILES["windows and tier"]))
    assert not isinstance(outcome, Found), str(outcome)
