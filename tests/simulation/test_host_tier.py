"""A host tier beside windows and recurrent states: each group has its own places in it, and what is brought back to
another, or is not what a prompt goes on from, shows as a wrong token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from scheduler_svc.core import integrity
from scheduler_svc.core.parts.fetch import side_copies
from scheduler_svc.core.state.blocks.block_pool import Blocks, Hashes
from scheduler_svc.core.state.blocks.copy_group import BlockCopy
from scheduler_svc.core.state.blocks.host_cache import HostCache
from scheduler_svc.core.state.blocks.tier import Found, Tier
from scheduler_svc.core.state.groups.checkpoints import Checkpoints
from scheduler_svc.core.state.groups.window import WindowBlocks
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step import prefix_sharing
from scheduler_svc.links.codec import delta
from signalbox.protocol import columns
from signalbox.protocol.block_groups import SPINE, states_number
from signalbox.protocol.columns import HOST_BIT
from tests.pairs import ALL_COMBINATIONS, in_soak
from tests.simulation.hunts import Hunt, in_scenarios
from tests.simulation.random_scenario import Scenario
from tests.simulation.ring.hunt import Found as FoundBug
from tests.simulation.ring.hunt import try_plot
from tests.simulation.ring.profiles import PROFILES
from tests.simulation.ring.scenario import draw
from worker_svc.core import steps_in_flight
from worker_svc.core.faults.isolation import RunnerBrokenError
from worker_svc.core.requests import checkpoints as kept

SEEDS = 12 if ALL_COMBINATIONS else 3
KINDS = {
    "windows": {"has_groups": True},
    "states": {"num_state_versions": 2, "has_checkpoints": True},
    "both": {"num_state_versions": 2, "has_checkpoints": True, "has_groups": True},
}

Patch = pytest.MonkeyPatch


def scenario(kind: str, seed: int, inflight: int, drafts: int = 0) -> Scenario:
    settings: dict[str, Any] = dict(KINDS[kind])
    if drafts and "num_state_versions" in settings:
        settings["num_state_versions"] = 3
    return Scenario(seed, inflight, drafts, has_host_tier=True, **settings)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drafts", [0, 3])
def test_every_scenario_keeps_every_rule(kind: str, drafts: int) -> None:
    """X11, X12, X13, WB5, CK5, Y1."""
    outcomes = [
        scenario(kind, seed, inflight, drafts).run() for inflight in (1, 2, 4) for seed in range(SEEDS)
    ]
    assert sum(outcome.num_preemptions for outcome in outcomes)
    assert sum(outcome.num_fences for outcome in outcomes)
    assert sum(outcome.num_host_hit_tokens for outcome in outcomes)
    assert sum(outcome.num_attempts - outcome.num_requests for outcome in outcomes), "nothing was replayed"


def copied_in_another_group(patch: Patch) -> None:
    """X11: all copies are made in the spine."""
    patch.setattr(delta, "_write_block_copies", columns.COPIES.write)


def given_away_while_a_fence_reads_it(patch: Patch) -> None:
    """X5, X11: of the groups but the spine, what copies beside the steps read gets other content."""
    fence_off = side_copies._fence_off

    def unpinned(worker: Worker, tier: Tier, *others: Any) -> int:
        if tier.group == SPINE:
            return fence_off(worker, tier, *others)
        pin = HostCache.pin
        patch.setattr(
            HostCache,
            "pin",
            lambda self, blocks, *, are_written=False: are_written and pin(self, blocks, are_written=True),
        )
        left = fence_off(worker, tier, *others)
        patch.setattr(HostCache, "pin", pin)
        return left

    def unpin(self: HostCache, blocks: Any) -> None:
        pinned.__get__(self)([block for block in blocks if block in self._pins])

    pinned = HostCache.unpin
    patch.setattr(side_copies, "_fence_off", unpinned)
    patch.setattr(HostCache, "unpin", unpin)
    patch.setattr(integrity, "check_state", lambda _: None)


def brought_back_to_another_place(patch: Patch) -> None:
    """X13: a checkpoint is copied back to another than the one that is gone on from, and the worker does not look."""
    add_copies = Worker.add_copies

    def beside(self: Worker, tier: Tier, copies: list[BlockCopy], to: list[BlockCopy]) -> None:
        if tier.group == states_number(self.info.groups):
            count = tier.pool.num_blocks
            copies = [
                copy if copy.target & HOST_BIT else copy._replace(target=(copy.target + 1) % count)
                for copy in copies
            ]
        add_copies(self, tier, copies, to)

    patch.setattr(Worker, "add_copies", beside)
    patch.setattr(kept.KeptState, "__ne__", lambda *_: False)


def a_hit_of_the_spine_alone(patch: Patch) -> None:
    """X12, WB5: a prefix is gone on from as far as the two tiers have the spine's blocks, if they have the last of each
    group's: what that has lost besides is taken to be what stands in block 0 of its host tier."""

    def longest(
        windows: list[WindowBlocks], tiers: list[Tier], hashes: Hashes
    ) -> tuple[int, tuple[Found, ...]]:
        length = len(hashes)
        firsts = [window.first_block(length * window.block_size) for window in windows]
        found = [each.find(hashes[first:]) for each, first in zip(tiers, firsts, strict=True)]
        has_last = [(each.blocks[-1:] >= 0) | (each.host_blocks[-1:] >= 0) for each in found]
        if not all(each.host.num_blocks for each in tiers) or not all(map(np.all, has_last)):
            return 0, ()
        return length, tuple(Found(each.blocks, np.maximum(each.host_blocks, 0)) for each in found)

    patch.setattr(prefix_sharing, "longest_in", longest)


def a_hit_without_its_state(patch: Patch) -> None:
    """X13, CK5: a prefix is gone on from at whose end neither tier has a state: another one is taken for it."""

    def longest(self: Checkpoints, tier: Tier, hashes: Hashes) -> tuple[int, Found | None]:
        count = len(hashes) // self.stride
        if not count or not self.pool.num_available or not tier.host.num_blocks:
            return 0, None
        return count * self.stride, Found(np.array([-1], np.int32), np.array([0], np.int32))

    patch.setattr(Checkpoints, "longest_in", longest)
    patch.setattr(kept.KeptState, "__ne__", lambda *_: False)


def saved_behind_what_overwrites_it(patch: Patch) -> None:
    """X1: a block gets content from the host tier before its own has gone out there."""

    def take_for(self: Tier, found: Found, hashes: Hashes) -> tuple[Blocks, list[BlockCopy]]:
        blocks, copies = whole(self, found, hashes)
        saves = [copy for copy in copies if copy.target & HOST_BIT]
        return blocks, [copy for copy in copies if not copy.target & HOST_BIT] + saves

    whole = Tier.take_for
    patch.setattr(Tier, "take_for", take_for)


def states_before_blocks(patch: Patch) -> None:
    """X13: rows go on from checkpoints that have not been brought back yet, and the worker believes they have."""
    run_step = steps_in_flight.run_step

    def early(runner: Any, copies: Any, batch: Any, then: Any, state_copies: Any) -> Any:
        if state_copies:
            runner.copy_states(state_copies)
        return run_step(runner, copies, batch, then)

    patch.setattr(steps_in_flight, "run_step", early)


def what_is_brought_is_not_followed(patch: Patch) -> None:
    """X13: the worker does not know what a checkpoint holds that came back."""
    patch.setattr(kept.Checkpoints, "follow", lambda *_: None)


def passed_to_a_step(patch: Patch) -> None:
    """X5, X11: a fence's blocks of the groups but the spine are anybody's before its copies have ended."""
    fence_off = side_copies._fence_off

    def opened(worker: Worker, tier: Tier, fence: Any, fenced: Any, *others: Any) -> int:
        left = fence_off(worker, tier, fence, fenced, *others)
        if tier.group != SPINE:
            tier.pool.unfence(fenced.blocks)
            fenced.blocks = fenced.blocks[:0]
            fenced.fetched, fenced.hashes = fenced.fetched[:0], fenced.hashes[:0]
        return left

    patch.setattr(side_copies, "_fence_off", opened)


def hunt_in(plant: Callable[[Patch], None], kind: str) -> Hunt:
    """A hunt in scenarios of this kind."""

    def run(seed: int) -> None:
        scenario(kind, seed, (2, 4, 1)[seed % 3]).run()

    return in_scenarios(plant, kind, run, AssertionError, IndexError, RunnerBrokenError)


HUNTS = [
    hunt_in(copied_in_another_group, "windows"),
    hunt_in(copied_in_another_group, "states"),
    *in_soak(hunt_in(given_away_while_a_fence_reads_it, "windows")),
    hunt_in(brought_back_to_another_place, "states"),
    hunt_in(a_hit_of_the_spine_alone, "windows"),
    hunt_in(a_hit_without_its_state, "states"),
    *in_soak(hunt_in(saved_behind_what_overwrites_it, "windows")),
    hunt_in(states_before_blocks, "states"),
    hunt_in(what_is_brought_is_not_followed, "states"),
    hunt_in(passed_to_a_step, "both"),
]


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", HUNTS, ids=str)
def test_a_planted_bug_is_found(hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt.run(monkeypatch)


@pytest.mark.sampled
@pytest.mark.parametrize("profile", [name for name in PROFILES if "tier" in name])
def test_rings_keep_every_rule(profile: str) -> None:
    """X11, X12, X13, WB7, J8."""
    for seed in range(10, 12):  # others than those of test_ring.py
        outcome = try_plot(draw(seed, PROFILES[profile]))
        assert not isinstance(outcome, FoundBug), str(outcome)
