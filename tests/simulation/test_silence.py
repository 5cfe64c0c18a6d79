"""Paths that go silent while requests are handed over, through the real shells (docs/design.md, HO14, HO18 to HO20;
docs/liveness.md, H2, A8, F5): no stream stands still for longer than `ring/silence.py` says. Workers that are told to
stop lose nothing that is on its way. Watchers and deadlines that are taken out (wait_mutants.py) have to be missed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.pairs import in_soak
from tests.simulation import wait_mutants as mutants
from tests.simulation.counts import FULL_COUNTS
from tests.simulation.hunts import Hunt
from tests.simulation.pair_mutants import sources_do_not_say_whose_fault_it_is
from tests.simulation.ring.farewell import draw_farewell
from tests.simulation.ring.hunt import Found, counts_of, try_plot
from tests.simulation.ring.scenario import FIRST_S
from tests.simulation.ring.setup import Plot
from tests.simulation.ring.silence import PATHS, draw_silence

SEEDS = 40 if FULL_COUNTS else 1
MOST_RINGS = 300
"""Within which what is taken out is missed."""


def silent(path: str, seed: int) -> Plot:
    """A ring of a seed in which a path of this kind goes silent."""
    return draw_silence(f"silent {path}/{seed}", path, FIRST_S)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", PATHS)
def test_a_silent_path_holds_no_stream_up(path: str) -> None:
    counts: Counter[str] = counts_of(silent(path, seed) for seed in range(SEEDS))
    assert counts["committed"] > SEEDS, f"the scenarios have become too easy: {counts}"


@pytest.mark.timeout(300)
def test_a_worker_that_is_told_to_stop_loses_nothing_that_is_on_its_way() -> None:
    """HO14: what was placed before the scheduler knew of the drain."""
    for seed in range(SEEDS):
        outcome = try_plot(farewell(seed))
        assert not isinstance(outcome, Found), outcome


def farewell(seed: int) -> Plot:
    """A ring of a seed in which a worker is told to stop while requests come."""
    return draw_farewell(f"farewell/{seed}", FIRST_S)


def in_farewells(plant: Callable[[pytest.MonkeyPatch], None]) -> Hunt:
    """A hunt in rings with a worker that is told to stop."""

    def try_seed(seed: int) -> str:
        outcome = try_plot(farewell(seed))
        return str(outcome) if isinstance(outcome, Found) else ""

    return Hunt(plant, "farewell", try_seed, MOST_RINGS)


def in_silence(plant: Callable[[pytest.MonkeyPatch], None], path: str) -> Hunt:
    """A hunt in rings with a silent path."""

    def try_seed(seed: int) -> str:
        outcome = try_plot(silent(path, seed))
        return str(outcome) if isinstance(outcome, Found) else ""

    return Hunt(plant, f"silent {path}", try_seed, MOST_RINGS)


HUNTS = [
    in_silence(mutants.silent_peers_are_waited_for, "peers"),
    in_silence(mutants.frozen_unheard, "frontend"),
    in_farewells(mutants.drains_are_not_confirmed),
    *in_soak(
        in_silence(mutants.frozen_rows_wait_alone, "worker"),
        in_silence(mutants.unheard_workers_are_not_told, "worker"),
        in_silence(mutants.doubt_stays, "worker"),
        in_silence(mutants.tails_are_not_remembered, "worker"),
        in_silence(mutants.silent_schedulers_are_waited_for, "worker"),
        in_silence(mutants.silent_streams_are_read_on, "outputs"),
        in_silence(mutants.silent_frontends_are_heard, "frontend"),
        in_silence(mutants.first_words_are_waited_for, "peers"),
        in_silence(sources_do_not_say_whose_fault_it_is, "worker"),
    ),
    *in_soak(in_silence(mutants.frozen_for_ever, "peers"), in_silence(mutants.moved_unheard, "frontend")),
]


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", HUNTS, ids=str)
def test_what_is_taken_out_is_missed(hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt.run(monkeypatch)
