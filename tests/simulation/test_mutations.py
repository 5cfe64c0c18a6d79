"""Bugs planted on purpose (mutants.py): random rings have to find each of them, or they prove nothing.

Each is hunted in the kind of scenario that reaches its code, from a seed on that is not far from one that shows it: all
were found within 100 seeds from 0."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import mutants
from tests.simulation.ring.hunt import Found, try_plot
from tests.simulation.ring.profiles import PROFILES
from tests.simulation.ring.scenario import draw

BUDGET = 40
"""Scenarios within which a planted bug has to show."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("plant", "profile", "first"),
    [
        (mutants.seal_without_generation_check, "calm", 8),
        (mutants.slot_reused_before_its_report, "calm", 0),
        (mutants.count_advanced_at_scheduling, "calm", 0),
        (mutants.fence_ended_before_its_copies, "calm", 3),
        (mutants.removed_worker_keeps_requests, "one", 2),
        (mutants.gone_frontend_is_kept, "one", 1),
        (mutants.no_start_grace, "alone", 0),
        (mutants.loan_outlives_its_blocks, "alone", 1),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], profile: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(first, first + BUDGET):
        outcome = try_plot(draw(seed, PROFILES[profile]))
        if isinstance(outcome, Found):
            print(f"found in scenario {seed - first + 1}: {outcome}")
            return
    pytest.fail(f"{plant.__name__} was not found in {BUDGET} scenarios")


def test_without_a_planted_bug_the_same_scenarios_pass() -> None:
    for profile, first in (("calm", 3), ("one", 1), ("alone", 0)):
        for seed in range(first, first + 3):
            outcome = try_plot(draw(seed, PROFILES[profile]))
            assert not isinstance(outcome, Found), f"{outcome}"
