"""Random scenarios of the two cores alone, beside the rings (test_ring.py): more messages against each other, checked
behind every one of them. One that fails is reproduced by its seed: `Scenario(seed, inflight, drafts).run()`."""

from __future__ import annotations

import time

import pytest

from tests.simulation.counts import FULL_COUNTS
from tests.simulation.random_scenario import Scenario

INFLIGHT = (1, 2, 4)
DRAFTS = (0, 1, 4)
SEEDS = 40
SEEDS_PER_TEST = 20 if FULL_COUNTS else 6


@pytest.mark.timeout(600)
@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS if FULL_COUNTS else SEEDS_PER_TEST, SEEDS_PER_TEST))
def test_every_scenario_keeps_every_rule(first: int, record_property: pytest.RecordProperty) -> None:
    """L1, L2, L9, L11, L12, C1, Y1, Z1."""
    started = time.perf_counter()
    events = scenarios = preemptions = displacements = hits = fences = replays = 0
    for seed in range(first, first + SEEDS_PER_TEST):
        for inflight in INFLIGHT:
            for drafts in DRAFTS:
                try:
                    outcome = Scenario(seed, inflight, drafts).run()
                except Exception as error:
                    error.add_note(f"reproduce with Scenario({seed}, {inflight}, {drafts}).run()")
                    raise
                scenarios += 1
                events += outcome.num_events
                preemptions += outcome.num_preemptions
                displacements += outcome.num_displacements
                hits += outcome.num_hit_tokens
                fences += outcome.num_fences
                replays += outcome.num_attempts - outcome.num_requests
    seconds = time.perf_counter() - started
    print(
        f"simulation: {scenarios} scenarios, {events} events, {preemptions} preemptions, "
        f"{displacements} displacements, {hits} tokens hit, {fences} fences, {replays} replays in {seconds:.1f} s"
    )
    assert preemptions and displacements and hits and fences and replays, "the scenarios have become too easy"


def test_one_seed_of_everything_keeps_every_rule() -> None:
    """L1, L2, L9, L11, L12, C1, Y1, Z1: the same scenarios, few of them."""
    for inflight in INFLIGHT:
        for drafts in DRAFTS:
            Scenario(SEEDS, inflight, drafts).run()


def test_a_seed_reproduces_exactly() -> None:
    first, second = Scenario(7, 2, 1), Scenario(7, 2, 1)
    assert first.run() == second.run()
    assert first.world.now == second.world.now
    assert [s.output for s in first.frontend.sessions] == [s.output for s in second.frontend.sessions]


def test_without_faults_nothing_is_rejected_or_replayed() -> None:
    for seed in range(8):
        scenario = Scenario(seed, 2, 1, faults=False)
        outcome = scenario.run()
        assert outcome.num_attempts == outcome.num_requests
        assert scenario.scheduler.num_divergences == 0
