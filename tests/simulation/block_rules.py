"""Whose blocks a step of a simulated worker may touch, and what it may find in them."""

from __future__ import annotations

from collections.abc import Iterable

from signalbox.protocol.block_groups import SPINE, states_number
from worker_svc.core.batch import BlockCopy
from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.core.running_step import RunningStep
from worker_svc.core.step import SideCopies, StepDelta
from worker_svc.runner.sim.model import SimRunner

Place = tuple[int, int]
"""A block of a group: number of the group, that behind the last one for checkpoints, and number of the block."""


def sources(copies: Iterable[BlockCopy], *, are_host: bool) -> set[Place]:
    """What copies read, on the device or in the host tier."""
    return {(copy.group, copy.source) for copy in copies if copy.source_is_host == are_host}


def targets(copies: Iterable[BlockCopy], *, are_host: bool) -> set[Place]:
    """What they write."""
    return {(copy.group, copy.target) for copy in copies if copy.target_is_host == are_host}


def check_untouched(
    fences: list[SideCopies], delta: StepDelta, step: RunningStep, runner: SimRunner
) -> set[Place]:
    """Asserts that nothing of a step reads or writes what is copied beside it. Returns what it uses on the device."""
    copies = [copy for group in fences for copy in group.copies]
    fenced = sources(copies, are_host=False) | targets(copies, are_host=False)
    host_targets = targets(copies, are_host=True)
    host = host_targets | sources(copies, are_host=True)
    others = delta.all_copies
    used = _used(delta, step, runner) | sources(others, are_host=False) | targets(others, are_host=False)
    assert not used & fenced, f"step {delta.step_id} touches fenced blocks {sorted(used & fenced)}"
    assert not targets(others, are_host=True) & host, "a host block is overwritten"
    assert not sources(others, are_host=True) & host_targets, "a host block is torn"
    return used


def _used(delta: StepDelta, step: RunningStep, runner: SimRunner) -> set[Place]:
    """What a step gives to slots, and what its batch reads and writes."""
    size, groups = runner.info.block_size, runner.info.groups
    starts, batch = (*delta.started, *delta.resumed), step.batch
    used = set[Place]()
    for number in range(SPINE, 1 + len(groups)):
        named = [delta.grants_of(number)[1], *(start.blocks_of(number) for start in starts)]
        tables = batch.block_tables if number == SPINE else batch.group_tables[number - 1]
        for row, length in enumerate(batch.seq_lens.tolist()):
            position = int(batch.positions[batch.query_starts[row]])
            first = 0 if number == SPINE else groups[number - 1].first_seen(position) // size
            named.append(tables[row, first : -(-length // size)])
        used |= {(number, block) for blocks in named for block in blocks.tolist()}
    checkpoints = [order.checkpoint for order in delta.checkpoints]
    checkpoints += [start.checkpoint for start in starts if start.checkpoint != NOTHING]
    return used | {(states_number(groups), checkpoint) for checkpoint in checkpoints}


def poison(runner: SimRunner, delta: StepDelta) -> None:
    """Overwrites what blocks held before they were given away: nobody may read anything that was not written since."""
    poison_places(runner, given_away(runner, delta) - sources(delta.copies, are_host=False))


def given_away(runner: SimRunner, delta: StepDelta) -> set[Place]:
    """Blocks that get new content with a step."""
    size, starts = runner.info.block_size, (*delta.started, *delta.resumed)
    fresh = {(SPINE, block) for block in delta.grant_blocks.tolist()}
    for start in starts:
        fresh |= {(SPINE, block) for block in start.blocks[start.start // size :].tolist()}
    for number in range(SPINE + 1, 1 + len(runner.info.groups)):
        fresh |= {(number, block) for block in delta.grants_of(number)[1].tolist()}
        for start in starts:
            first, blocks = start.groups[number - 1]
            fresh |= {(number, block) for block in blocks[start.start // size - first :].tolist()}
    return fresh | {(states_number(runner.info.groups), order.checkpoint) for order in delta.checkpoints}


def poison_targets(runner: SimRunner, copies: list[BlockCopy]) -> None:
    """What copies beside the steps are to write is gone from now on."""
    poison_places(runner, targets(copies, are_host=False) - sources(copies, are_host=False))
    poison_places(runner, targets(copies, are_host=True), are_host=True)


def poison_places(runner: SimRunner, places: set[Place], *, are_host: bool = False) -> None:
    """Fills blocks of whatever groups with what no token leaves behind."""
    for group, block in places:
        runner.poison(group, [block], are_host=are_host)
