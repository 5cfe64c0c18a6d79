"""Limits of drafts that fall and rise while steps are in flight: the scheduler's bounds stay bounds."""

from __future__ import annotations

import pytest

from scheduler_svc.core.state.slots.table import SlotTable
from tests.simulation.named import INFLIGHT, request, simulate
from worker_svc.core.drafts import policy

MOST = 4


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every limit that the scheduler takes over; requests change theirs every few steps."""
    monkeypatch.setattr(policy, "FIRST_PAUSE", 2)
    monkeypatch.setattr(policy, "LONGEST_PAUSE", 3)
    monkeypatch.setattr(policy, "TRIAL_STEPS", 2)
    limit_drafts, seen = SlotTable.limit_drafts, []

    def watch(table: SlotTable, slot: int, limit: int) -> None:
        seen.append(limit)
        limit_drafts(table, slot, limit)

    monkeypatch.setattr(SlotTable, "limit_drafts", watch)
    return seen


@INFLIGHT
@pytest.mark.parametrize("num_blocks", [200, 24])
def test_limits_fall_and_rise(inflight: int, num_blocks: int, limits: list[int]) -> None:
    """L9, L10."""
    simulation = simulate(inflight, MOST, num_blocks, acceptance=0.05)
    sessions = [
        simulation.plan(request(f"r{number}", 9, 45, 100 * number), at=1.5 + 0.1 * number)
        for number in range(8)
    ]
    assert (simulation.run().num_preemptions > 0) == (num_blocks == 24)
    assert [len(session.output) for session in sessions] == [45] * 8
    assert limits.count(0) > 8
    assert set(limits) == {0, MOST}


@INFLIGHT
def test_limits_after_another_scheduler_took_over(inflight: int, limits: list[int]) -> None:
    """What was asked of the one that died is asked of the next; what was confirmed is in the snapshot."""
    simulation = simulate(inflight, MOST, acceptance=0.05)
    for number in range(6):
        simulation.plan(request(f"r{number}", 9, 50, 100 * number), at=1.5)
    for at in (1.8, 2.6, 3.4):
        simulation.world.at(at, simulation.scheduler.kill)
        simulation.world.at(at + 0.1, simulation.scheduler.restart)
    simulation.run()
    assert limits.count(MOST) > 6
