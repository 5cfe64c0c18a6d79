"""What no scheduler of ours says of cached blocks that go from one worker to another (docs/design.md, K10)."""

from __future__ import annotations

from collections.abc import Sequence

from worker_svc.core.pull_orders import GroupBlock
from worker_svc.core.step import StepDelta
from worker_svc.links.handoff_columns import MAX_KEY_BYTES, MAX_NAME_CHARS


def misfit_of_pulls(delta: StepDelta, counts: Sequence[int]) -> str | None:
    """Why what a step says of them can fit no worker with so many blocks of each group; None: it can."""
    orders = delta.pulls
    if orders is None:
        return None
    named = [orders.pull.blocks] if orders.pull is not None else []
    for blocks in (*named, *(export.blocks for export in orders.exports)):
        if misfit := _blocks_misfit(blocks, counts):
            return misfit
    if orders.pull is None:
        return None
    pull = orders.pull
    names = (*pull.source, pull.address)
    if not all(names) or any(len(name) > MAX_NAME_CHARS for name in names):
        return "it pulls blocks from a worker without a name, or an address"
    if not 0 < len(pull.key) <= MAX_KEY_BYTES:
        return f"it pulls blocks under a key of {len(pull.key)} bytes"
    written = set(pull.blocks)
    if any(not written.isdisjoint(export.blocks) for export in orders.exports):
        return "it shows blocks that it has written"
    if delta.disk is not None and not written.isdisjoint(
        GroupBlock(each.group, each.block) for each in (*delta.disk.loads, *delta.disk.stores)
    ):
        return "it pulls a block that a disk loads, or stores"
    return None


def _blocks_misfit(blocks: Sequence[GroupBlock], counts: Sequence[int]) -> str | None:
    for group, block in blocks:
        if group >= len(counts) or block >= counts[group]:
            return f"it pulls or shows block {block} of group {group}, and there is none"
    return "it pulls or shows a block twice" if len(set(blocks)) != len(blocks) else None
