"""Workers that keep checkpoints of recurrent states: clients see what they see of workers without, and a state that is
not that of the tokens ahead of it shows as a wrong token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from scheduler_svc.core.state.blocks.block_pool import Hashes
from scheduler_svc.core.state.groups.checkpoints import NO_CHECKPOINT, Checkpoints
from scheduler_svc.core.state.steps.step import StepDecision, StepRecord, StepReport
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step import report
from scheduler_svc.links.codec.delta import parse_offer
from signalbox.protocol.block_groups import StateGroup
from signalbox.v1 import from_worker_pb2
from tests.pairs import ALL_COMBINATIONS, in_soak
from tests.simulation import groups
from tests.simulation.hunts import Hunt, in_scenarios
from tests.simulation.random_scenario import Scenario
from worker_svc.core.batch import Batch, RunnerInfo
from worker_svc.core.faults.isolation import RunnerBrokenError
from worker_svc.core.requests import checkpoints as kept
from worker_svc.core.requests.state_versions import NOTHING, StateVersions
from worker_svc.core.step import CheckpointOrder
from worker_svc.links.delta import build_state_group

SEEDS = 16 if ALL_COMBINATIONS else 4

Patch = pytest.MonkeyPatch


def scenario(seed: int, inflight: int, *, has_groups: bool = False, drafts: int = 0) -> Scenario:
    return Scenario(
        seed,
        inflight,
        drafts,
        num_state_versions=2 + (drafts > 0),
        has_checkpoints=True,
        has_groups=has_groups,
    )


@pytest.mark.sampled
@pytest.mark.parametrize("has_groups", [False, True])
def test_every_scenario_keeps_every_rule(has_groups: bool) -> None:
    """CK1, CK2, CK6, SG3, Y1. Beside windows, too."""
    outcomes = [
        scenario(seed, inflight, has_groups=has_groups).run()
        for inflight in (1, 2, 4)
        for seed in range(SEEDS)
    ]
    assert sum(outcome.num_preemptions for outcome in outcomes)
    assert sum(outcome.num_hit_tokens for outcome in outcomes)
    assert sum(outcome.num_attempts - outcome.num_requests for outcome in outcomes), "nothing was replayed"


@pytest.mark.parametrize("prompts_only", [False, True])
def test_a_hello_says_what_checkpoints_are_of(prompts_only: bool) -> None:
    """CK1, CK11."""
    group = StateGroup(64, 4, 1000, prompts_only)
    said = build_state_group(RunnerInfo("m", 8, 4, 64, 100, (), num_state_versions=2, state_group=group))
    assert parse_offer(from_worker_pb2.WorkerHello(state_group=said)).state_group == group


def look_at_what_is_kept(patch: Patch) -> list[tuple[int, int]]:
    """From now on: (position, end of what a prompt's chunks have computed) of each state that a worker keeps."""
    noted, note = list[tuple[int, int]](), kept.Checkpoints._note

    def look(self: kept.Checkpoints, slot: int, checkpoint: int, position: int) -> None:
        noted.append((position, int(self._table.prefill_target[slot])))
        note(self, slot, checkpoint, position)

    patch.setattr(kept.Checkpoints, "_note", look)
    return noted


def test_where_prompts_alone_count_nobody_goes_on_from_a_state_of_decoding(monkeypatch: Patch) -> None:
    """CK11, Y1. Beside drafts, too; elsewhere such states are kept and gone on from."""
    noted = look_at_what_is_kept(monkeypatch)
    for share, expected in ((1, False), (0, True)):
        monkeypatch.setattr(groups, "PROMPTS_ONLY_SHARE", share)
        noted.clear()
        outcomes = [
            scenario(seed, inflight, drafts=seed % 2 * 3).run() for inflight in (1, 2) for seed in range(10)
        ]
        assert sum(outcome.num_hit_tokens for outcome in outcomes)
        assert any(position > end for position, end in noted) is expected
        assert any(position <= end for position, end in noted)


def kept_a_token_early(patch: Patch) -> None:
    """CK2: of a chunk, the state behind one token less is kept."""
    keep = kept.Checkpoints.keep

    def early(self: kept.Checkpoints, batch: Batch, orders: Sequence[CheckpointOrder]) -> None:
        keep(self, batch, orders)
        first = batch.query_starts
        batch.state_keeps = [
            each._replace(end=each.end - 1) if each.end - 1 > first[each.row] else each
            for each in batch.state_keeps
        ]

    patch.setattr(kept.Checkpoints, "keep", early)


def kept_where_the_row_is(patch: Patch) -> None:
    """CK3: what is said to be the last boundary's state is the one of now."""
    last = kept.Checkpoints._last_boundary

    def now(self: kept.Checkpoints, slot: int) -> tuple[int, int]:
        return int(self._states.version[slot]), last(self, slot)[1]

    patch.setattr(kept.Checkpoints, "_last_boundary", now)


def given_away_while_it_is_read(patch: Patch) -> None:
    """CK7: who goes on from a checkpoint does not hold it."""

    def start(
        self: Checkpoints, slot: int, position: int, checkpoint: int, *, is_kept: bool, **_: bool
    ) -> None:
        self.forget_slot(slot)
        self.is_kept[slot], self.kept[slot] = is_kept, position

    patch.setattr(Checkpoints, "start", start)
    patch.setattr(Checkpoints, "release", lambda *_: None)
    patch.setattr(Checkpoints, "check_integrity", lambda *_: None)


def given_to_a_victim_of_the_start(patch: Patch) -> None:
    """CK7: a start has found a checkpoint, and whoever gives up its blocks for it gets that to be written."""
    preempt = Worker.preempt

    def at_once(self: Worker, slot: int, step: StepDecision) -> None:
        preempt(self, slot, step)
        assert self.checkpoints is not None
        step.checkpoints += self.checkpoints.name_leaving()

    patch.setattr(Worker, "preempt", at_once)


def blocks_without_a_state(patch: Patch) -> None:
    """CK5: a prefix is gone on from at whose end there is no state."""

    def longest(self: Checkpoints, hashes: Hashes) -> tuple[int, int]:
        return len(hashes) // self.stride * self.stride, NO_CHECKPOINT

    patch.setattr(Checkpoints, "longest", longest)
    patch.setattr(StateVersions, "gap_ahead_of", lambda *_: "")


def named_by_the_next_boundary(patch: Patch) -> None:
    """CK1: a state is found by the name of a longer prefix, and the worker does not look."""
    publish = report._publish_checkpoints

    def further(worker: Worker, checkpoints: Checkpoints, record: StepRecord, told: StepReport) -> None:
        boundary = checkpoints.group.boundary
        told.checkpoint_positions = [each and each + boundary for each in told.checkpoint_positions]
        publish(worker, checkpoints, record, told)

    patch.setattr(report, "_publish_checkpoints", further)
    patch.setattr(kept.KeptState, "__ne__", lambda *_: False)


def never_told(patch: Patch) -> None:
    """CK8: orders are reported that nobody takes back."""
    patch.setattr(Checkpoints, "take_report", lambda *_: None)


def restored_to_another_version(patch: Patch) -> None:
    """CK6: the state is copied where the row does not read."""

    def resume(self: StateVersions, slot: int, num_tokens: int) -> int:
        self.num_tokens[slot] = num_tokens
        return (int(self.version[slot]) + 1) % self.num_versions

    patch.setattr(StateVersions, "resume", resume)


def a_boundary_that_is_not_written(patch: Patch) -> None:
    """CK3: a row passes a boundary, and its state there is not kept."""
    keep = kept.Checkpoints.keep

    def forgotten(self: kept.Checkpoints, batch: Batch, orders: Sequence[CheckpointOrder]) -> None:
        keep(self, batch, orders)
        assert self.group is not None
        batch.state_keeps = [each for each in batch.state_keeps if each.checkpoint != NOTHING]
        rows = np.arange(batch.num_decode_rows)
        at = batch.seq_lens[rows] % self.group.boundary == 0
        self.boundaries[batch.slots[rows[at]]] = batch.seq_lens[rows[at]]

    patch.setattr(kept.Checkpoints, "keep", forgotten)


def written_twice(patch: Patch) -> None:
    """CK7: what a step in flight writes is given to another order, and nobody looks."""
    order = Checkpoints.order
    last: dict[int, int] = {}

    def again(
        self: Checkpoints, slot: int, position: int, *, is_shared: bool = False
    ) -> list[CheckpointOrder]:
        before = last.get(id(self))
        if before is not None and self.pool.ref_counts[before] and not self.pool.has_content[before]:
            self.pool.ref_counts[before] += 1
            self.ordered.setdefault(slot, set()).add(position)
            return [CheckpointOrder(slot, before, position)]
        made = order(self, slot, position, is_shared=is_shared)
        if made:
            last[id(self)] = made[0].checkpoint
        return made

    patch.setattr(Checkpoints, "order", again)
    patch.setattr(Checkpoints, "check_integrity", lambda *_: None)


def hunt_of(plant: Callable[[Patch], None]) -> Hunt:
    return in_scenarios(
        plant,
        "states",
        lambda seed: scenario(seed, (2, 4, 1)[seed % 3]).run(),
        AssertionError,
        RunnerBrokenError,
    )


HUNTS = [
    hunt_of(written_twice),
    hunt_of(kept_a_token_early),
    hunt_of(kept_where_the_row_is),
    hunt_of(given_away_while_it_is_read),
    *in_soak(hunt_of(given_to_a_victim_of_the_start)),
    hunt_of(blocks_without_a_state),
    hunt_of(named_by_the_next_boundary),
    hunt_of(never_told),
    hunt_of(restored_to_another_version),
    hunt_of(a_boundary_that_is_not_written),
]


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", HUNTS, ids=str)
def test_a_planted_bug_is_found(hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt.run(monkeypatch)
