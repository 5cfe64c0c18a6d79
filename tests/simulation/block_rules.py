"""Whose blocks a step of a simulated worker may touch, and what it may find in them."""

from __future__ import annotations

from worker_svc.core.running_step import RunningStep
from worker_svc.core.step import SideCopies, StepDelta
from worker_svc.runner.sim.model import SimRunner


def check_untouched(fences: list[SideCopies], delta: StepDelta, step: RunningStep, block_size: int) -> None:
    """Asserts that nothing of a step reads or writes what is copied beside it."""
    copies = [copy for group in fences for copy in group.copies]
    fenced = {copy.source for copy in copies if not copy.source_is_host}
    fenced |= {copy.target for copy in copies if not copy.target_is_host}
    host_targets = {copy.target for copy in copies if copy.target_is_host}
    host = host_targets | {copy.source for copy in copies if copy.source_is_host}
    used = set(delta.grant_blocks.tolist())
    for start in (*delta.started, *delta.resumed):
        used |= set(start.blocks.tolist())
    batch = step.batch
    for row, length in enumerate(batch.seq_lens.tolist()):
        used |= set(batch.block_tables[row, : -(-length // block_size)].tolist())
    others = [*delta.copies, *(delta.side_copies.copies if delta.side_copies else [])]
    used |= {copy.source for copy in others if not copy.source_is_host}
    used |= {copy.target for copy in others if not copy.target_is_host}
    assert not used & fenced, f"step {delta.step_id} touches fenced blocks {sorted(used & fenced)}"
    assert not {copy.target for copy in others if copy.target_is_host} & host, "a host block is overwritten"
    assert not {copy.source for copy in others if copy.source_is_host} & host_targets, "a host block is torn"


def poison(runner: SimRunner, delta: StepDelta) -> None:
    """Overwrites what blocks held before they were given away: nobody may read anything that was not written since."""
    fresh = delta.grant_blocks.tolist()
    for start in (*delta.started, *delta.resumed):
        fresh += start.blocks[start.start // runner.info.block_size :].tolist()
    copied = {copy.source for copy in delta.copies if not copy.source_is_host}
    runner.poison([block for block in fresh if block not in copied])
    for number in range(1, 1 + len(runner.info.groups)):
        fresh = delta.grants_of(number)[1].tolist()
        for start in (*delta.started, *delta.resumed):
            first, blocks = start.groups[number - 1]
            fresh += blocks[start.start // runner.info.block_size - first :].tolist()
        runner.poison_group(number, fresh)
    runner.poison_checkpoints([order.checkpoint for order in delta.checkpoints])
