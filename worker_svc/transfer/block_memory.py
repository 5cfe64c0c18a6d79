"""The memory of a runner's KV blocks, as rows of bytes that can be read and written beside its steps.

Each tensor that a layer keeps is a *strip*: `[num_blocks, bytes_per_block]` bytes. Block b of a group of layers is row
b of all the group's strips. No lock is held: who reads or writes a block knows that no step touches it meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from signalbox.protocol.block_groups import BlockGroup
from worker_svc.transfer.errors import TransferError
from worker_svc.transfer.row_copies import I64, CopierOf, numpy_copier
from worker_svc.transfer.shared_memory import SharedMemory

_FORMAT = "signalbox blocks 1"
"""Counts up when rows travel in another order, or mean something else."""


@dataclass(frozen=True)
class Strip:
    """One tensor's blocks."""

    rows: NDArray[np.uint8]
    """[num_blocks, bytes_per_block], contiguous and writable."""
    content: str
    """What a row is: type and shape, such as "bfloat16 3x16x64"."""


def strip_of(array: NDArray[np.generic], dtype: str = "", shape: tuple[int, ...] | None = None) -> Strip:
    """The strip of an array `[num_blocks, ...]`, which it shares. dtype, shape: of a row, where numpy does not know
    them."""
    shape = array.shape[1:] if shape is None else shape
    rows = array.view(np.uint8).reshape(len(array), -1)
    return Strip(rows, content_of(dtype or str(array.dtype), shape))


def content_of(dtype: str, shape: Sequence[int]) -> str:
    """What a row of this type and shape is called."""
    return f"{dtype} {'x'.join(map(str, shape))}"


class LaidOut(Protocol):
    """Blocks as bytes (`worker_svc.core.batch.BlockBytes`), of which it is known how they lie in memory."""

    @property
    def digest(self) -> str:
        """Two with equal ones can exchange blocks, however many they have."""

    def bytes_per_block(self, group: int) -> int:
        """Bytes of a block in all layers of its group."""

    def read(self, group: int, blocks: Sequence[int]) -> bytes:
        """What is in blocks of a group: tensor by tensor, in each the blocks in the order given."""

    def write(self, group: int, blocks: Sequence[int], content: bytes) -> None:
        """Puts what `read` gave elsewhere into blocks."""


class BlockMemory:
    """All groups' strips. Any thread may ask."""

    def __init__(
        self,
        groups: Sequence[Sequence[Strip]],
        kinds: Sequence[BlockGroup],
        block_size: int,
        shared: SharedMemory | None = None,
        counts: Sequence[int] | None = None,
        copier_of: CopierOf = numpy_copier,
    ) -> None:
        """groups: strips of the spine, then of each group of `kinds`, in the order of their layers. block_size:
        positions of a block. shared: what all strips lie in; None: nobody else can map them. counts: blocks of each
        group, of groups without strips, too; None: as many as these have rows. copier_of: how blocks are copied here
        from memory that is mapped."""
        assert len(groups) == 1 + len(kinds)
        self.groups = tuple(tuple(strip.rows for strip in strips) for strips in groups)
        """[groups][strips] of `[num_blocks, bytes_per_block]`."""
        self.digest = digest_of([[strip.content for strip in strips] for strips in groups], kinds, block_size)
        """Two workers with equal ones can exchange blocks, however many they have."""
        self.shared, self.copier_of = shared, copier_of
        self._num_blocks = counts or [
            min((len(rows) for rows in strips), default=0) for strips in self.groups
        ]

    def bytes_per_block(self, group: int) -> int:
        """Bytes of a block in all strips of its group."""
        return sum(rows.shape[1] for rows in self.groups[group])

    def checked(self, group: int, blocks: Sequence[int] | NDArray[np.integer]) -> I64:
        """The ids of `blocks`. TransferError if there is no such group, or no such block in it."""
        return checked_ids(group, blocks, self._num_blocks)

    def read(self, group: int, blocks: Sequence[int]) -> bytes:
        """The bytes of `blocks`: strip by strip, in each the blocks in the order given. TransferError as `checked`."""
        ids = self.checked(group, blocks)
        return b"".join(rows[ids].tobytes() for rows in self.groups[group])

    def write(self, group: int, blocks: Sequence[int], content: bytes) -> None:
        """Writes what `read` gave elsewhere. TransferError as `checked`, and if the number of bytes is another; nothing
        is written then."""
        ids = self.checked(group, blocks)
        expected = len(ids) * self.bytes_per_block(group)
        if len(content) != expected:
            raise TransferError(
                f"{len(ids)} blocks of group {group} have {expected} bytes, not {len(content)}"
            )
        start = 0
        for rows in self.groups[group]:
            end = start + len(ids) * rows.shape[1]
            rows[ids] = np.frombuffer(content, np.uint8, end - start, start).reshape(len(ids), -1)
            start = end


@runtime_checkable
class OffersBlocks(Protocol):
    """A runner whose blocks can travel."""

    @property
    def block_memory(self) -> BlockMemory | None:
        """Its blocks, the same object always; None: there are none that a channel reaches."""


def pairs(
    memory: BlockMemory, group: int, source_blocks: Sequence[int], target_blocks: Sequence[int]
) -> tuple[I64, I64]:
    """The ids of a source's blocks, and of those of `memory` that they are to be in. TransferError if these are not
    there, or not as many."""
    targets = memory.checked(group, target_blocks)
    sources = np.asarray(source_blocks, np.int64).reshape(-1)
    if len(sources) != len(targets) or (len(sources) and sources.min() < 0):
        raise TransferError(f"{len(sources)} blocks of the source for {len(targets)} of ours")
    return sources, targets


def checked_ids(group: int, blocks: Sequence[int] | NDArray[np.integer], counts: Sequence[int]) -> I64:
    """The ids of `blocks` of a group, where there are `counts` of each. TransferError if there is no such group, or no
    such block in it."""
    ids = np.asarray(blocks, np.int64).reshape(-1)
    if not 0 <= group < len(counts):
        raise TransferError(f"there is no group {group}: {len(counts)} are here")
    if len(ids) and not (ids.min() >= 0 and ids.max() < counts[group]):
        raise TransferError(f"a block of group {group} is none of {counts[group]}")
    return ids


def digest_of(contents: Sequence[Sequence[str]], kinds: Sequence[BlockGroup], block_size: int) -> str:
    """The digest of blocks whose groups have rows of such `contents`: the spine's, then those of `kinds`."""
    lines = [_FORMAT, f"block_size {block_size}", "group 0"]
    lines += contents[0]
    for number, (kind, rows) in enumerate(zip(kinds, contents[1:], strict=True), 1):
        lines.append(f"group {number} kind {int(kind.kind)} reach {kind.reach}")
        lines += rows
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
