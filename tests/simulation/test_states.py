"""Workers whose model keeps recurrent states: clients see what they see of workers without, and a state that is one
step off shows as a wrong token."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler_svc.core.state.worker_info import WorkerInfo
from tests.simulation import worker_node
from tests.simulation.ahead import EarlySimRunner
from tests.simulation.hunts import Hunt, in_scenarios
from tests.simulation.random_scenario import Scenario
from tests.simulation.test_ahead import AheadScenario
from worker_svc.core.batch import Batch
from worker_svc.core.requests.state_versions import NOTHING, StateVersions

SEEDS = 12
AHEAD = 3
"""Versions where two steps are in flight."""

Patch = pytest.MonkeyPatch


def test_every_scenario_keeps_every_rule() -> None:
    """SG3, SG4, SG7, Y1. Steps in turn; preempted requests are computed again, and nothing is found in a cache."""
    outcomes = [
        Scenario(seed, inflight, 0, num_state_versions=2).run()
        for inflight in (1, 4)
        for seed in range(SEEDS)
    ]
    assert sum(outcome.num_preemptions for outcome in outcomes)
    assert sum(outcome.num_displacements for outcome in outcomes)
    assert sum(outcome.num_attempts - outcome.num_requests for outcome in outcomes), "nothing was replayed"
    assert not sum(outcome.num_hit_tokens for outcome in outcomes)


@pytest.mark.sampled
@pytest.mark.parametrize("early", [False, True])
def test_steps_ahead_of_their_tokens_keep_every_rule(early: bool, monkeypatch: Patch) -> None:
    """SG3, O6. Two in flight, of which some are lost and run again, with those behind them."""
    if early:
        monkeypatch.setattr(worker_node, "AheadSimRunner", EarlySimRunner)
    rows = sum(AheadScenario(seed, 2, num_state_versions=AHEAD).run_ahead() for seed in range(SEEDS // 2))
    assert rows > 100, "the scenarios have become too easy"


def updated_in_place(patch: Patch) -> None:
    """SG3: a step writes the version that it reads."""

    def take(states: StateVersions, batch: Batch) -> None:
        states.num_in_flight[batch.slots] += 1
        starts = batch.positions[batch.query_starts[:-1]]
        batch.state_writes = states.version[batch.slots]
        batch.state_reads = np.where(starts == 0, np.int32(NOTHING), batch.state_writes)

    patch.setattr(StateVersions, "take", take)


def one_version_too_few(patch: Patch) -> None:
    """SG3: a step in flight writes what the one ahead of it would read again."""

    def take(states: StateVersions, batch: Batch) -> None:
        starts = batch.positions[batch.query_starts[:-1]]
        versions = (states.version[batch.slots] + states.num_in_flight[batch.slots]) % (AHEAD - 1)
        states.num_in_flight[batch.slots] += 1
        batch.state_reads = np.where(starts == 0, np.int32(NOTHING), versions)
        batch.state_writes = (versions + 1) % (AHEAD - 1)

    patch.setattr(StateVersions, "take", take)


def state_survives_a_preemption(patch: Patch) -> None:
    """SG4: a row at position 0 goes on from what its slot holds."""
    take = StateVersions.take

    def take_all(states: StateVersions, batch: Batch) -> None:
        take(states, batch)
        known = states.version[batch.slots]
        has_one = states.num_tokens[batch.slots] > 0
        batch.state_reads = np.where((batch.state_reads < 0) & has_one, known, batch.state_reads)

    patch.setattr(StateVersions, "take", take_all)
    patch.setattr(StateVersions, "reset", lambda *_: None)


def blocks_are_reused_all_the_same(patch: Patch) -> None:
    """SG7: a prefix is found, at whose end there is no state."""
    patch.setattr(WorkerInfo, "names_key", property(lambda info: info.identity.key))
    patch.setattr(StateVersions, "gap_ahead_of", lambda *_: "")


HUNTS = [
    in_scenarios(
        plant,
        "states ahead",
        lambda seed: AheadScenario(seed, 2, num_state_versions=AHEAD).run_ahead(),
        AssertionError,
    )
    for plant in (
        updated_in_place,
        one_version_too_few,
        state_survives_a_preemption,
        blocks_are_reused_all_the_same,
    )
]


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", HUNTS, ids=str)
def test_a_planted_bug_is_found(hunt: Hunt, monkeypatch: Patch) -> None:
    """SG3, SG4, SG7."""
    hunt.run(monkeypatch)
