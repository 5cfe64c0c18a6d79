"""Steps that hang, and steps that only take long, through the real shells (docs/design.md, U6 to U9; docs/liveness.md,
E7, S1 to S4): a request that hangs its workers costs two of them, ends with one error, and holds nobody else up for
longer than `ring/hangs.py` says; a worker that is stopped or compiles is left alone. What is taken out of that
(hang_mutants.py) has to be missed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.pairs import in_soak
from tests.simulation import hang_mutants as mutants
from tests.simulation.counts import FULL_COUNTS
from tests.simulation.hunts import Hunt
from tests.simulation.ring.hangs import KINDS, draw_hang
from tests.simulation.ring.hunt import Found, explain, shrink, try_plot
from tests.simulation.ring.scenario import FIRST_S
from tests.simulation.ring.setup import Plot

SEEDS = 40 if FULL_COUNTS else 1
MOST_RINGS = 300
"""Within which what is taken out is missed."""


def hanging(kind: str, seed: int) -> Plot:
    """A ring of a seed in which a step takes long, in this way."""
    return draw_hang(f"hang {kind}/{seed}", kind, FIRST_S)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_who_hangs_is_ended_and_nobody_else(kind: str) -> None:
    for seed in range(SEEDS):
        plot = hanging(kind, seed)
        outcome = try_plot(plot)
        if isinstance(outcome, Found):
            pytest.fail(f"{outcome}\n{explain(shrink(outcome))}")
        hung = [error for error in outcome.errors if "crashed or hung while computing it" in error]
        assert len(hung) == sum(planned.request.is_hanging for planned in plot.requests)


def in_hangs(plant: Callable[[pytest.MonkeyPatch], None], kind: str) -> Hunt:
    """A hunt in rings in which a step takes long."""

    def try_seed(seed: int) -> str:
        outcome = try_plot(hanging(kind, seed))
        return str(outcome) if isinstance(outcome, Found) else ""

    return Hunt(plant, f"hang {kind}", try_seed, MOST_RINGS)


HUNTS = [
    in_hangs(mutants.rows_of_a_hang_are_no_suspects, "request"),
    in_hangs(mutants.limit_follows_the_longest_step, "long"),
    in_hangs(mutants.stopped_processes_hang, "stopped"),
    *in_soak(
        in_hangs(mutants.second_hang_is_not_counted, "request"),
        in_hangs(mutants.nobody_ends_what_hangs, "request"),
        in_hangs(mutants.compilers_are_not_waited_for, "compiled"),
        in_hangs(mutants.ended_steps_go_on, "compiled"),
        in_hangs(mutants.limits_are_not_told, "request"),
    ),
]


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", HUNTS, ids=str)
def test_what_is_taken_out_is_missed(hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt.run(monkeypatch)
