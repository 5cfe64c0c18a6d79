"""Requests that lose their place to others of a higher class, and get it back."""

from __future__ import annotations

import pytest

from tests.simulation.named import INFLIGHT, preemptions, request, simulate
from tests.simulation.session import Session


def displacements(simulation) -> int:  # type: ignore[no-untyped-def]
    workers = simulation.scheduler.core.workers.values()
    return sum(worker.stats.num_displacements for worker in workers)


@INFLIGHT
@pytest.mark.parametrize("drafts", [0, 4])
def test_displaced_ten_times_and_the_same_tokens(inflight: int, drafts: int) -> None:
    """Q3."""
    simulation = simulate(inflight, drafts, policy="priority", max_num_seqs=1, aging_s=0.0)
    low = request("low", 6, 50)
    low.priority = 5
    simulation.plan(low, at=1.5)
    urgent: list[Session] = []

    def urge() -> None:
        """Another one as soon as the last has ended and the low one has gone on since."""
        if low.output and len(urgent) < 10 and not low.is_done and all(other.is_done for other in urgent):
            urgent.append(request(f"urgent{len(urgent)}", 3, 2, 500 + 10 * len(urgent)))
            simulation.plan(urgent[-1], at=0.0)
        if len(urgent) < 10:
            simulation.world.at(0.03, urge)

    simulation.world.at(1.5, urge)
    simulation.run()
    assert len(urgent) == 10
    assert displacements(simulation) >= 10
    assert preemptions(simulation) == 0, "its blocks were not needed"
    assert len(low.output) == 50


@INFLIGHT
def test_a_displaced_request_gives_up_its_blocks_when_they_are_needed(inflight: int) -> None:
    """Q3."""
    simulation = simulate(inflight, num_blocks=10, policy="priority", max_num_seqs=1, aging_s=0.0)
    low, high = request("low", 14, 20), request("high", 16, 18, 500)
    low.priority = 5
    simulation.plan(low, at=1.5)
    simulation.plan(high, at=1.65)
    simulation.run()
    assert displacements(simulation) + preemptions(simulation) > 0
    assert preemptions(simulation) > 0
    assert len(low.output) == 20
    assert len(high.output) == 18
