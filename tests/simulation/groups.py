"""Groups of layers, and checkpoints of recurrent states, for simulated models."""

from __future__ import annotations

import random
from dataclasses import replace

from signalbox.protocol.block_groups import BlockGroup, StateGroup
from signalbox.protocol.enums import BlockGroupKind

PROMPTS_ONLY_SHARE = 0.25
"""Share of the workers that keep no states of decoding (CK11)."""


def draw_groups(dice: random.Random, block_size: int, max_draft_tokens: int) -> tuple[BlockGroup, ...]:
    """One group or two, of reaches from less than a block on, with as few blocks as there may be or some more."""
    groups = []
    for _ in range(dice.choice((1, 1, 2))):
        kind = dice.choice((BlockGroupKind.WINDOW, BlockGroupKind.WINDOW, BlockGroupKind.CHUNK))
        in_blocks = kind == BlockGroupKind.CHUNK
        reach = block_size * dice.choice((1, 3)) if in_blocks else dice.choice((1, 3, 5, 8, 13))
        least = BlockGroup(kind, reach, 1).blocks_of_one(block_size, max_draft_tokens)
        groups.append(BlockGroup(kind, reach, least + dice.choice((0, 2, 6, 20))))
    return tuple(groups)


def draw_states(dice: random.Random, block_size: int) -> StateGroup:
    """Checkpoints at each block or each few, from one on: then every one of them is another's."""
    boundary, num_checkpoints = block_size * dice.choice((1, 2, 3)), dice.choice((1, 2, 5, 40))
    return StateGroup(boundary, num_checkpoints, prompts_only=dice.random() < PROMPTS_ONLY_SHARE)


def with_host_tier(
    dice: random.Random, groups: tuple[BlockGroup, ...], states: StateGroup | None
) -> tuple[int, tuple[BlockGroup, ...], StateGroup | None]:
    """Places in a host tier for each group, from none on: those of the spine, groups and checkpoints with theirs."""
    num_spine_blocks = dice.choice((0, 4, 12, 40))
    groups = tuple(replace(group, num_host_blocks=dice.choice((0, 2, 6, 30))) for group in groups)
    if states is not None:
        states = replace(states, num_host_checkpoints=dice.choice((0, 1, 4, 20)))
    return num_spine_blocks, groups, states
