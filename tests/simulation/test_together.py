"""A scheduler and a worker that die together, through the real shells (docs/design.md, J13): no stream stands still for
longer than `ring/together.py` says, though the next scheduler has never met the worker. Evidence that is dropped, and
waits for those who cannot have a request (wait_mutants.py), have to be missed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.pairs import in_soak
from tests.simulation import wait_mutants as mutants
from tests.simulation.counts import FULL_COUNTS
from tests.simulation.hunts import Hunt
from tests.simulation.ring.hunt import Found, counts_of, try_plot
from tests.simulation.ring.scenario import FIRST_S
from tests.simulation.ring.setup import Plot
from tests.simulation.ring.together import draw_together

SEEDS = 60 if FULL_COUNTS else 3
MOST_RINGS = 300
"""Within which what is taken out is missed."""


def together(seed: int) -> Plot:
    """A ring of a seed."""
    return draw_together(f"together/{seed}", FIRST_S)


@pytest.mark.timeout(600)
def test_a_worker_that_dies_with_its_scheduler_holds_no_stream_up() -> None:
    counts_of(together(seed) for seed in range(SEEDS))


def in_such_rings(plant: Callable[[pytest.MonkeyPatch], None]) -> Hunt:
    """A hunt in such rings."""

    def try_seed(seed: int) -> str:
        outcome = try_plot(together(seed))
        return str(outcome) if isinstance(outcome, Found) else ""

    return Hunt(plant, "together", try_seed, MOST_RINGS)


HUNTS = [
    in_such_rings(mutants.strangers_are_not_believed),
    in_such_rings(mutants.requests_wait_for_all),
    *in_soak(in_such_rings(mutants.refusals_are_not_believed)),
]


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", HUNTS, ids=str)
def test_what_is_taken_out_is_missed(hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt.run(monkeypatch)
