"""Drafts beside recurrent states: what a wrong draft leaves in a state, or a right one does not, shows as a wrong
token."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pytest

from tests.pairs import ALL_COMBINATIONS, in_soak
from tests.simulation.hunts import Hunt, in_scenarios
from tests.simulation.random_scenario import Scenario
from worker_svc.core.batch import Batch
from worker_svc.core.faults.isolation import RunnerBrokenError
from worker_svc.core.requests.checkpoints import Checkpoints
from worker_svc.core.requests.state_versions import StateVersions
from worker_svc.core.step import I64, CheckpointOrder
from worker_svc.runner.sim.model import U64, SimRunner

SEEDS = 16 if ALL_COMBINATIONS else 4
DRAFTS = 4

Patch = pytest.MonkeyPatch


def scenario(seed: int, inflight: int, *, has_checkpoints: bool = True, has_groups: bool = False) -> Scenario:
    return Scenario(
        seed,
        inflight,
        DRAFTS,
        num_state_versions=3,
        has_checkpoints=has_checkpoints,
        has_groups=has_groups,
    )


@pytest.mark.sampled
@pytest.mark.parametrize(("has_checkpoints", "has_groups"), [(False, False), (True, False), (True, True)])
def test_every_scenario_keeps_every_rule(has_checkpoints: bool, has_groups: bool) -> None:
    """SG3, SG10, SG11, CK3, Y1."""
    outcomes = [
        scenario(seed, inflight, has_checkpoints=has_checkpoints, has_groups=has_groups).run()
        for inflight in (1, 2, 4)
        for seed in range(SEEDS)
    ]
    assert sum(outcome.num_preemptions for outcome in outcomes)
    assert bool(sum(outcome.num_hit_tokens for outcome in outcomes)) == has_checkpoints


def drafts_are_in_the_state(patch: Patch) -> None:
    """SG10: the state behind all drafts is written, as if they were right."""
    patch.setattr(Batch, "known_lengths", property(lambda batch: batch.query_lengths))


def wrong_drafts_run_again(patch: Patch) -> None:
    """SG10: the tail is what was drafted, not what was right."""
    commit = StateVersions.commit

    def all_of_them(self: StateVersions, batch: Batch, failed: Collection[int], matched: I64) -> None:
        drafted = (batch.query_lengths - batch.known_lengths)[: len(matched)]
        commit(self, batch, failed, drafted.astype(np.int64))

    patch.setattr(StateVersions, "commit", all_of_them)


def right_drafts_are_lost(patch: Patch) -> None:
    """SG10: a state stays behind by the drafts that were right."""
    take = StateVersions.take

    def without(self: StateVersions, batch: Batch) -> None:
        take(self, batch)
        batch.state_tails = np.zeros_like(batch.state_tails)

    patch.setattr(StateVersions, "take", without)


def a_tail_outlives_a_preemption(patch: Patch) -> None:
    """SG10: who goes on from a checkpoint has the drafts of another time ahead of it."""

    def resume(self: StateVersions, slot: int, num_tokens: int) -> int:
        self.num_tokens[slot] = num_tokens
        self.num_tail[slot] = 1
        return int(self.version[slot])

    patch.setattr(StateVersions, "resume", resume)


def a_boundary_among_drafts(patch: Patch) -> None:
    """SG11: the state of a boundary is kept that lies behind drafts which nobody has looked at yet, or where the row's
    known token is."""
    keep = Checkpoints.keep

    def early(self: Checkpoints, batch: Batch, orders: Sequence[CheckpointOrder]) -> None:
        keep(self, batch, orders)
        first = batch.query_starts
        batch.state_keeps = [
            each._replace(end=each.end + 1) if each.end < first[each.row + 1] else each
            for each in batch.state_keeps
        ]

    patch.setattr(Checkpoints, "keep", early)


def a_boundary_in_a_tail_is_passed(patch: Patch) -> None:
    """SG11: of a boundary in a tail the state behind all of the tail is kept."""
    move = SimRunner._move_states

    def late(self: SimRunner, batch: Batch, contents: U64) -> U64:
        keeps, first = batch.state_keeps, batch.query_starts
        batch.state_keeps = [each._replace(end=max(each.end, int(first[each.row]) + 1)) for each in keeps]
        states = move(self, batch, contents)
        batch.state_keeps = keeps
        return states

    patch.setattr(SimRunner, "_move_states", late)


def hunt_of(plant: Callable[[Patch], None]) -> Hunt:
    return in_scenarios(
        plant,
        "states and drafts",
        lambda seed: scenario(seed, (2, 4, 1)[seed % 3]).run(),
        *(AssertionError, RunnerBrokenError, IndexError),
    )


HUNTS = [
    hunt_of(drafts_are_in_the_state),
    hunt_of(wrong_drafts_run_again),
    hunt_of(right_drafts_are_lost),
    hunt_of(a_tail_outlives_a_preemption),
    hunt_of(a_boundary_among_drafts),
    *in_soak(hunt_of(a_boundary_in_a_tail_is_passed)),
]


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", HUNTS, ids=str)
def test_a_planted_bug_is_found(hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt.run(monkeypatch)
