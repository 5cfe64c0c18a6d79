"""Which groups of blocks the layers of a model make, and how memory is divided among them (docs/design.md, GR)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from signalbox.protocol.block_groups import SPINE, BlockGroup
from worker_svc.runner.attention.kv_cache import LayerShape

SPARE_BLOCKS = 2
"""Blocks of a group that a row has beside its reach, as a reach seldom begins with a block."""
STEPS = 2
"""Steps whose prompts have their blocks at once."""
PROMPT_PART = 8
"""Part of the memory that they have at most, of small caches."""
MEAN_TOKENS = 4096
"""Mean length of a request, where no setting says."""
MOST_BLOCKS = 1 << 20
"""Blocks of a spine that holds nothing."""


@dataclass(frozen=True)
class CacheLayout:
    """The blocks of each group, and whose layer is in which."""

    num_blocks: int
    """Blocks of the spine."""
    groups: tuple[BlockGroup, ...]
    """Other groups, in order."""
    of_layers: tuple[int, ...]
    """[layers] number of each layer's group."""

    def blocks_of(self, layer: int) -> int:
        """Blocks of a layer's cache."""
        group = self.of_layers[layer]
        return self.num_blocks if group == SPINE else self.groups[group - 1].num_blocks


@dataclass(frozen=True)
class Need:
    """What requests need of the cache, by which it is divided. Lengths in tokens."""

    block_size: int
    mean_tokens: int
    """Mean length of a request, prompt and output."""
    step_tokens: int
    """Most prompt tokens of a step."""
    max_tokens: int
    """Length of the longest request."""
    max_draft_tokens: int = 0
    most_prompt_blocks: int = MOST_BLOCKS
    """Blocks of a group that are for prompts beside all rows, at most: their chunks are cut to what there is."""

    def of_row(self, reach: int) -> int:
        """Blocks of a group with this reach for one request, beside what its prompt takes for a while."""
        return min(-(-reach // self.block_size) + SPARE_BLOCKS, -(-self.mean_tokens // self.block_size))

    def requests_of(self, num_blocks: int) -> int:
        """Requests whose blocks of the spine these are, rounded up."""
        return -(-num_blocks * self.block_size // self.mean_tokens)

    def of_group(self, reach: int, num_requests: float) -> int:
        """Blocks of a group with this reach for so many requests at a time."""
        of_prompts = min(STEPS * -(-self.step_tokens // self.block_size), self.most_prompt_blocks)
        return int(num_requests * self.of_row(reach)) + of_prompts


def with_host_tier(layout: CacheLayout, num_host_blocks: int, need: Need) -> CacheLayout:
    """The layout with places in a host tier, for the windows of as many requests as its `num_host_blocks` of the spine
    are for."""
    num_requests = need.requests_of(num_host_blocks)
    groups = tuple(
        replace(group, num_host_blocks=num_requests * need.of_row(group.reach)) for group in layout.groups
    )
    return replace(layout, groups=groups)


def one_group(shapes: Sequence[LayerShape], num_blocks: int) -> CacheLayout:
    """All layers in the spine."""
    return CacheLayout(num_blocks, (), (SPINE,) * len(shapes))


def with_blocks(
    shapes: Sequence[LayerShape], num_blocks: int, need: Need, position_bytes: int
) -> CacheLayout:
    """The layout where the spine has so many blocks. `position_bytes`: bytes of an element of the cache."""
    return _layout(shapes, num_blocks, num_blocks * need.block_size / need.mean_tokens, need, position_bytes)


def within_bytes(
    shapes: Sequence[LayerShape], num_bytes: int, need: Need, position_bytes: int, spine_extra: int = 0
) -> CacheLayout | None:
    """The layout of so many bytes; None: one group alone has room, or none. `spine_extra`: bytes that something else
    takes of each block of the spine."""
    sizes = bytes_by_reach(shapes, need, position_bytes)
    spine_bytes = sizes.pop(None, 0) + spine_extra
    if not sizes:
        return None
    need = replace(need, most_prompt_blocks=num_bytes // PROMPT_PART // sum(sizes.values()))
    left = num_bytes - sum(need.of_group(sees[1], 0) * size for sees, size in sizes.items() if sees)
    of_spine = need.mean_tokens / need.block_size
    of_groups = [
        (need.of_group(sees[1], 1) - need.of_group(sees[1], 0)) * size for sees, size in sizes.items() if sees
    ]
    num_requests = left / (of_spine * spine_bytes + sum(of_groups))
    if num_requests < 1:
        return None
    if spine_bytes:
        num_blocks = int(num_requests * of_spine)
    else:
        num_blocks = min(int(num_requests) * -(-need.max_tokens // need.block_size), MOST_BLOCKS)
    return _layout(shapes, num_blocks, num_requests, need, position_bytes)


def bytes_by_reach(
    shapes: Sequence[LayerShape], need: Need, position_bytes: int
) -> dict[tuple[int, int] | None, int]:
    """Bytes per block of all layers that see alike: by kind and reach of a group; None: the spine."""
    sizes: dict[tuple[int, int] | None, int] = {}
    for shape in shapes:
        if shape.elements:
            sees = _sees(shape, need)
            sizes[sees] = sizes.get(sees, 0) + shape.elements * need.block_size * position_bytes
    return sizes


def _layout(
    shapes: Sequence[LayerShape], num_blocks: int, num_requests: float, need: Need, position_bytes: int
) -> CacheLayout:
    sizes = bytes_by_reach(shapes, need, position_bytes)
    groups: dict[tuple[int, int] | None, BlockGroup] = {}
    for sees in sorted(each for each in sizes if each is not None):
        group = BlockGroup(sees[0], sees[1], need.of_group(sees[1], num_requests), sizes[sees])
        least = group.blocks_of_one(need.block_size, need.max_draft_tokens)
        if max(group.num_blocks, least) < num_blocks:  # else it gains nothing
            groups[sees] = BlockGroup(group.kind, group.reach, max(group.num_blocks, least), sizes[sees])
    numbers = {sees: number for number, sees in enumerate(groups, SPINE + 1)}
    of_layers = tuple(numbers.get(_sees(shape, need), SPINE) for shape in shapes)
    return CacheLayout(num_blocks, tuple(groups.values()), of_layers)


def _sees(shape: LayerShape, need: Need) -> tuple[int, int] | None:
    """Kind and reach of the group that a layer could be of; None: it sees all positions that a request can have."""
    return shape.sees if shape.sees is not None and shape.sees[1] < need.max_tokens else None
