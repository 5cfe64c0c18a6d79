"""Workers that drain while another one cannot read from them, through the real shells (docs/design.md, HO21): requests
go to whoever can, and to the other when it can again. Bugs planted on purpose (pair_mutants.py) have to be found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.pairs import in_soak
from tests.simulation import pair_mutants as mutants
from tests.simulation.counts import FULL_COUNTS
from tests.simulation.hunts import Hunt
from tests.simulation.ring.hunt import Found, counts_of, try_plot
from tests.simulation.ring.pair_watch import CASES, draw_forms, draw_pairs
from tests.simulation.ring.scenario import FIRST_S
from tests.simulation.ring.setup import Plot

SEEDS = 40 if FULL_COUNTS else 2
MOST_RINGS = 300
"""Within which a planted bug is found."""


def bad_pair(case: str, seed: int) -> Plot:
    """The ring of a seed, of a case."""
    return draw_pairs(f"pairs {case}/{seed}", case, FIRST_S)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES)
def test_a_bad_pair_holds_no_drain_up(case: str) -> None:
    counts: Counter[str] = counts_of(bad_pair(case, seed) for seed in range(SEEDS))
    assert counts["begun"] > counts["committed"] >= SEEDS, f"the scenarios have become too easy: {counts}"


@pytest.mark.timeout(300)
def test_a_form_that_cannot_be_prepared_leaves_no_pair_out() -> None:
    counts: Counter[str] = counts_of(forms(seed) for seed in range(SEEDS))
    assert counts["begun"] > counts["committed"] >= SEEDS, f"the scenarios have become too easy: {counts}"


def forms(seed: int) -> Plot:
    """The ring of a seed in which targets cannot prepare some forms."""
    return draw_forms(f"pairs forms/{seed}", FIRST_S)


def in_forms(plant: Callable[[pytest.MonkeyPatch], None]) -> Hunt:
    """A hunt in rings in which targets cannot prepare some forms."""

    def try_seed(seed: int) -> str:
        outcome = try_plot(forms(seed))
        return str(outcome) if isinstance(outcome, Found) else ""

    return Hunt(plant, "pairs forms", try_seed, MOST_RINGS)


def in_pairs(plant: Callable[[pytest.MonkeyPatch], None], case: str) -> Hunt:
    """A hunt in rings with a bad pair."""

    def try_seed(seed: int) -> str:
        outcome = try_plot(bad_pair(case, seed))
        return str(outcome) if isinstance(outcome, Found) else ""

    return Hunt(plant, f"pairs {case}", try_seed, MOST_RINGS)


HUNTS = [
    in_pairs(mutants.pairs_that_failed_are_not_left_out, "beside"),
    in_pairs(mutants.pairs_are_left_out_for_ever, "alone"),
    in_forms(mutants.failures_of_requests_count),
    *in_soak(in_pairs(mutants.pauses_do_not_grow, "alone")),
]


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", HUNTS, ids=str)
def test_a_planted_bug_is_found(hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt.run(monkeypatch)
