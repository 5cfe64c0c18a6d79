"""Conversations that come back at another worker, through the real shells (docs/design.md, PB): the rules are those of
every ring, and those of `ring/pull_watch.py`. Bugs that are planted on purpose (pull_mutants.py) have to be found."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.pairs import in_soak
from tests.simulation import pull_mutants as mutants
from tests.simulation.counts import FULL_COUNTS
from tests.simulation.hunts import Hunt, in_rings
from tests.simulation.ring.hunt import counts_of
from tests.simulation.ring.profiles import PROFILES
from tests.simulation.ring.scenario import draw

SEEDS = 40 if FULL_COUNTS else 5


def run(profile: str, seeds: range) -> Counter[str]:
    """What became of these rings."""
    return counts_of(draw(seed, PROFILES[profile]) for seed in seeds)


@pytest.mark.sampled
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "profile", ["pulls", "pulls calm", "pulls that are struck", "pulls, windows and tier", "pulls nan"]
)
def test_a_conversation_comes_back_at_another_worker(profile: str) -> None:
    """PB1 to PB6: whatever happens meanwhile, all tokens are right, and nothing is left behind."""
    counts = run(profile, range(60, 60 + SEEDS))
    assert counts["pulls"] >= SEEDS, f"the scenarios have become too easy: {counts}"


HUNTS = [
    in_rings(mutants.source_gives_shown_blocks_away, "pulls, windows and tier"),
    in_rings(mutants.shown_blocks_are_held_for_ever, "pulls calm"),
    in_rings(mutants.failed_pulls_are_published, "pulls"),
    in_rings(mutants.blocks_are_read_on_when_the_link_has_ended, "pulls"),
    in_rings(mutants.blocks_are_written_on_when_the_link_has_ended, "pulls that are struck"),
    *in_soak(in_rings(mutants.blocks_are_written_before_their_step_ran, "pulls, windows and tier")),
    in_rings(mutants.blocks_come_in_another_order, "pulls calm"),
]


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", HUNTS, ids=str)
def test_a_planted_bug_is_found(hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt.run(monkeypatch)
