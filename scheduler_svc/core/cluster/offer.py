"""What a worker may offer. Beyond these limits it is no deployment but a mistake, and one process must not cost us the
memory of all others (docs/liveness.md, W1)."""

from __future__ import annotations

from scheduler_svc.core.state.worker_info import WorkerInfo
from signalbox.protocol.block_groups import BlockGroup, StateGroup
from signalbox.protocol.enums import BlockGroupKind

MAX_SLOTS = 1 << 16
MAX_LANES = 64
"""Most slots of a worker: they travel as u16."""
MAX_BLOCKS = 1 << 24
"""Most blocks on the device, or in the host tier. One of 141 GB with the smallest models has a million."""
MAX_BLOCK_SIZE = 1 << 16
"""Most tokens of a block."""
MAX_TOKENS = 1 << 30
"""Most tokens of a sequence, or in a step."""
MAX_GROUPS = 7
"""Most groups of blocks beside the spine. Models of today have two at most."""
MAX_DRAFT_TOKENS = 255
"""Counts of them travel as u8."""
MAX_TABLE_BLOCKS = 1 << 28
"""Places in all block tables together, 24 bytes each once they are written: 4,096 slots of a million tokens in blocks
of 16."""


class OfferError(ValueError):
    """What a peer says of itself is out of bounds. `field` names what, with the path from its message on."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field.rpartition('.')[2]} {problem}")
        self.field = field


def check_offer(info: WorkerInfo) -> None:
    """Raises OfferError when no worker can be what `info` says."""
    _check("hello.model.block_size", info.block_size, 1, MAX_BLOCK_SIZE)
    _check("hello.model.max_model_len", info.max_model_len, 1, MAX_TOKENS)
    _check("hello.num_slots", info.num_slots, 1, MAX_SLOTS)
    _check("hello.num_lanes", info.num_lanes, 1, MAX_LANES)
    _check("hello.num_blocks", info.num_blocks, 1, MAX_BLOCKS)
    _check("hello.num_host_blocks", info.num_host_blocks, 0, MAX_BLOCKS)
    _check("hello.max_num_batched_tokens", info.max_num_batched_tokens, 1, MAX_TOKENS)
    _check("hello.max_draft_tokens", info.max_draft_tokens, 0, MAX_DRAFT_TOKENS)
    for number, group in enumerate(info.groups):
        _check_group(f"hello.groups[{number}]", group, info)
    if len(info.groups) > MAX_GROUPS:
        raise OfferError("hello.groups", f"are {len(info.groups)}; {MAX_GROUPS} are allowed")
    if info.state_group is not None:
        _check_states("hello.state_group", info.state_group, info)
    longest = info.max_blocks_per_request * (1 + len(info.groups))
    if info.num_slots * longest > MAX_TABLE_BLOCKS:
        problem = f"is {info.num_slots}, and the longest request has {longest} blocks; "
        raise OfferError("hello.num_slots", f"{problem}{MAX_TABLE_BLOCKS} are allowed together")


def _check_group(field: str, group: BlockGroup, info: WorkerInfo) -> None:
    kinds = set(BlockGroupKind)
    if group.kind not in kinds:
        raise OfferError(f"{field}.kind", f"is {group.kind}; {min(kinds)} to {max(kinds)} are known")
    _check(f"{field}.reach", group.reach, 1, MAX_TOKENS)
    _check(f"{field}.num_host_blocks", group.num_host_blocks, 0, MAX_BLOCKS)
    least = group.blocks_of_one(info.block_size, info.max_draft_tokens)
    _check(f"{field}.num_blocks", group.num_blocks, least, MAX_BLOCKS)
    if group.kind == BlockGroupKind.CHUNK and group.reach % info.block_size:
        problem = f"is {group.reach}; chunks are in whole blocks of {info.block_size}"
        raise OfferError(f"{field}.reach", problem)


def _check_states(field: str, states: StateGroup, info: WorkerInfo) -> None:
    _check(f"{field}.boundary", states.boundary, info.block_size, MAX_TOKENS)
    _check(f"{field}.num_checkpoints", states.num_checkpoints, 1, MAX_BLOCKS)
    _check(f"{field}.num_host_checkpoints", states.num_host_checkpoints, 0, MAX_BLOCKS)
    if states.boundary % info.block_size:
        problem = f"is {states.boundary}; boundaries are at whole blocks of {info.block_size}"
        raise OfferError(f"{field}.boundary", problem)


def _check(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise OfferError(field, f"is {value}; {least} to {most} are allowed")
