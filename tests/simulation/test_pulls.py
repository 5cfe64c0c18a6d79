"""Conversations that come back at another worker, through the real shells (docs/design.md, PB): the rules are those of
every ring, and those of `ring/pull_watch.py`. Bugs that are planted on purpose (pull_mutants.py) have to be found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.simulation import pull_mutants as mutants
from tests.simulation.counts import FULL_COUNTS
from tests.simulation.ring.hunt import Found, counts_of, try_plot
from tests.simulation.ring.profiles import PROFILES
from tests.simulation.ring.scenario import draw

SEEDS = 40 if FULL_COUNTS else 8
BUDGET = 150
"""Rings within which a planted bug has to show."""


def run(profile: str, seeds: range) -> Counter[str]:
    """What became of these rings."""
    return counts_of(draw(seed, PROFILES[profile]) for seed in seeds)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "profile", ["pulls", "pulls calm", "pulls that are struck", "pulls, windows and tier", "pulls nan"]
)
def test_a_conversation_comes_back_at_another_worker(profile: str) -> None:
    """PB1 to PB6: whatever happens meanwhile, all tokens are right, and nothing is left behind."""
    counts = run(profile, range(SEEDS))
    assert counts["pulls"] >= SEEDS, f"the scenarios have become too easy: {counts}"


@pytest.mark.sampled
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("plant", "profile"),
    [
        (mutants.source_gives_shown_blocks_away, "pulls"),
        (mutants.shown_blocks_are_held_for_ever, "pulls calm"),
        (mutants.failed_pulls_are_published, "pulls"),
        (mutants.blocks_are_read_on_when_the_link_has_ended, "pulls"),
        (mutants.blocks_are_written_on_when_the_link_has_ended, "pulls that are struck"),
        pytest.param(
            mutants.blocks_are_written_before_their_step_ran,
            "pulls, windows and tier",
            marks=pytest.mark.soak,
        ),
        (mutants.blocks_come_in_another_order, "pulls calm"),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(BUDGET):
        outcome = try_plot(draw(seed, PROFILES[profile]))
        if isinstance(outcome, Found):
            print(f"found in scenario {seed + 1}: {outcome}")
            return
    pytest.fail(f"{plant.__name__} was not found in {BUDGET} scenarios")
