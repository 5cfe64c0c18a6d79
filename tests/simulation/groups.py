"""Groups of layers, and checkpoints of recurrent states, for simulated models."""

from __future__ import annotations

import random

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
