"""Workers with groups of layers that look back so far and no farther: clients see what they see of others, and a block
that is released too early, or read from the wrong place, shows as a wrong token."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from scheduler_svc.core import integrity
from scheduler_svc.core.state.blocks.block_pool import Blocks, Hashes
from scheduler_svc.core.state.groups.window import WindowBlocks
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.slots.columns import SlotColumns
from scheduler_svc.core.state.steps.step import Slots
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step import decode_blocks, prefill_admission, prefix_sharing
from scheduler_svc.core.step.capacity import BlockNeed, StepCapacity
from tests.pairs import in_soak
from tests.simulation.hunts import Hunt, in_rings, in_scenarios
from tests.simulation.random_scenario import Scenario
from worker_svc.core.requests.group_tables import GroupTable

SEEDS = 16
NO_BLOCKS = np.empty(0, np.int32)

Patch = pytest.MonkeyPatch


def test_every_scenario_keeps_every_rule() -> None:
    """GR1, WB6, Y1."""
    outcomes = [
        Scenario(seed, inflight, drafts, has_groups=True).run()
        for inflight, drafts in ((1, 0), (2, 0), (4, 3), (1, 5))
        for seed in range(SEEDS)
    ]
    assert sum(outcome.num_preemptions for outcome in outcomes)
    assert sum(outcome.num_displacements for outcome in outcomes)
    assert sum(outcome.num_hit_tokens for outcome in outcomes)
    assert sum(outcome.num_attempts - outcome.num_requests for outcome in outcomes), "nothing was replayed"


def released_by_counts_in_flight(patch: Patch) -> None:
    """WB2: what a step in flight, or one that runs again, looks at is released."""

    def sent(columns: SlotColumns, slots: Slots) -> Slots:
        return np.maximum(columns.num_sent[slots], columns.bound[slots] - 1)

    patch.setattr(SlotColumns, "confirmed", sent)


def released_a_block_early(patch: Patch) -> None:
    """WB1: the block of the first position that is still seen is released."""
    firsts_seen = WindowBlocks._firsts_seen
    patch.setattr(
        WindowBlocks,
        "_firsts_seen",
        lambda window, positions: firsts_seen(window, positions + window.block_size),
    )
    patch.setattr(WindowBlocks, "check_slots", lambda *_: ())


def hit_without_its_window(patch: Patch) -> None:
    """WB5: a prefix is gone on from whose last positions one group has lost."""

    def longest(windows: list[WindowBlocks], hashes: Hashes) -> tuple[int, tuple[Blocks, ...]]:
        length = len(hashes)
        firsts = [window.first_block(length * window.block_size) for window in windows]
        found = [window.find(hashes)[first:] for window, first in zip(windows, firsts, strict=True)]
        if any((blocks[-1:] < 0).any() for blocks in found):
            return 0, tuple(NO_BLOCKS for _ in windows)
        return length, tuple(np.maximum(blocks, 0) for blocks in found)

    patch.setattr(prefix_sharing, "longest_hit", longest)
    patch.setattr(integrity, "check_state", lambda _: None)


def published_for_another_holder(patch: Patch) -> None:
    """C3: in a group, too, a block may have been given to somebody else since."""
    patch.setattr(WindowBlocks, "still_theirs", lambda window, slots, indexes: np.ones(len(slots), np.bool_))


def started_with_some_groups_only(patch: Patch) -> None:
    """GR4: a start takes the spine's blocks, and of the other groups what is there."""
    count_lacking = StepCapacity.count_lacking

    def of_the_spine(self: StepCapacity, request: Request) -> None:
        count_lacking(self, request)
        self.needs[1:] = [BlockNeed(0, 0, 0) for _ in self.needs[1:]]

    patch.setattr(StepCapacity, "count_lacking", of_the_spine)


def short_of_the_spine_alone(patch: Patch) -> None:
    """GR4: rows are granted blocks, and victims chosen, by what the spine lacks."""
    shortages = decode_blocks._shortages

    def of_the_spine(worker: Worker, slot: int) -> list[int]:
        first, *others = shortages(worker, slot)
        return [first, *(0 for _ in others)]

    patch.setattr(decode_blocks, "_shortages", of_the_spine)
    patch.setattr(Worker, "num_available", property(lambda worker: worker.pool.num_available))


def nobody_gives_way_to_a_prompt(patch: Patch) -> None:
    """GR5: a prompt that goes on and finds no block of a group waits for others, whoever they are."""
    patch.setattr(prefill_admission, "victim_for", lambda *_: None)


def adopted_a_block_ahead(patch: Patch) -> None:
    """WB4: the table of a snapshot is taken to begin a block ahead of where it says."""
    adopt = WindowBlocks.adopt

    def ahead(window: WindowBlocks, slot: int, first: int, blocks: Blocks) -> None:
        adopt(window, slot, max(first - 1, 0), blocks)

    patch.setattr(WindowBlocks, "adopt", ahead)
    patch.setattr(WindowBlocks, "check_slots", lambda *_: ())


def kept_by_the_worker(patch: Patch) -> None:
    """WB3: the worker calls a block a slot's that the slot is done with, and refuses who writes it."""
    patch.setattr(GroupTable, "leave_behind", lambda *_: None)


def run_one(seed: int) -> None:
    """A scenario with windows."""
    Scenario(seed, (2, 4, 1)[seed % 3], (0, 3, 5)[seed % 3], has_groups=True).run()


def hunt_of(plant: Callable[[Patch], None]) -> Hunt:
    return in_scenarios(plant, "windows", run_one, AssertionError, IndexError)


HUNTS = [
    hunt_of(released_by_counts_in_flight),
    hunt_of(released_a_block_early),
    hunt_of(hit_without_its_window),
    hunt_of(published_for_another_holder),
    hunt_of(started_with_some_groups_only),
    hunt_of(short_of_the_spine_alone),
    *in_soak(hunt_of(nobody_gives_way_to_a_prompt)),
    hunt_of(adopted_a_block_ahead),
]
RING_HUNTS = [in_rings(kept_by_the_worker, "windows")]


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", HUNTS, ids=str)
def test_a_planted_bug_is_found(hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt.run(monkeypatch)


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", RING_HUNTS, ids=str)
def test_a_planted_bug_is_found_in_a_ring(hunt: Hunt, monkeypatch: Patch) -> None:
    hunt.run(monkeypatch)
