"""The target's end of NIXL: reads rows of the source's memory into a buffer of its own, and copies them from there.

A read that is broken off may write for a while yet. It writes into the buffer then, and into no block, which may have
become another request's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from signalbox.v1.transfer_offer_pb2 import Strip, TransferOffer
from worker_svc.transfer.block_memory import BlockMemory, pairs
from worker_svc.transfer.channels.nixl_agent import NixlAgent
from worker_svc.transfer.channels.streams import STALL_S
from worker_svc.transfer.channels.tcp_source import MOST_BLOCKS
from worker_svc.transfer.channels.tcp_target import BATCH_BYTES
from worker_svc.transfer.errors import TransferError
from worker_svc.transfer.row_copies import I64, CopyBlocks, Rows

OPEN_S = 3.0
POLL_S = 1e-4


@dataclass(frozen=True)
class _Group:
    """How blocks of a group are read."""

    ours: Any
    """Rows of the buffer: strip by strip, `size` each."""
    theirs: Any
    """Rows of the source: strip by strip, all of its blocks. None of both where the group has no strips."""
    firsts: I64
    """[strips] where each strip's rows begin in `theirs`."""
    num_blocks: int
    size: int
    """Blocks that are read at once."""
    copy: CopyBlocks
    """From the buffer to blocks."""


class NixlReader:
    """A source's memory, by an agent."""

    channel = "nixl"

    def __init__(self, memory: BlockMemory, agent: NixlAgent, offer: TransferOffer) -> None:
        """memory: where blocks are written. TransferError if the source does not answer, or has other blocks."""
        self._memory, self._agent = memory, agent
        strips = check_strips(memory, offer)
        self._reading = threading.Lock()
        self._is_closed = self._has_left = False
        self._is_broken = False
        """Whether a read was broken off, and may go on."""
        self._prepared: list[Any] = []
        largest = max(memory.bytes_per_block(group) for group in range(len(memory.groups)))
        self._buffer = np.zeros(max(BATCH_BYTES, largest), np.uint8)
        self._registered = agent.register(self._buffer)
        try:
            self._peer = agent.meet(offer.nixl_metadata)
        except TransferError:
            agent.forget(self._registered)
            raise
        try:
            found = iter(strips)
            self._groups = [
                self._group(group, [next(found) for _ in rows]) for group, rows in enumerate(memory.groups)
            ]
            # Whether it can be had at all is found out here, while there are other channels.
            for group in self._groups:
                self._fetch(group, np.zeros(1, np.int64), OPEN_S)
        except TransferError:
            self.close()
            raise

    def read(self, group: int, source_blocks: Sequence[int], target_blocks: Sequence[int]) -> None:
        """Reads blocks, and waits for all of them; see `BlockReader`."""
        sources, targets = pairs(self._memory, group, source_blocks, target_blocks)
        try:
            with self._reading:
                found = self._groups[group]
                if len(sources) and sources.max() >= found.num_blocks:
                    raise TransferError("the source has no such block")
                for start in range(0, len(sources), found.size):
                    part = slice(start, start + found.size)
                    self._fetch(found, sources[part], STALL_S)
                    found.copy(targets[part], np.arange(len(targets[part])))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the pull; a read that is under way in another thread fails. See `BlockReader`."""
        self._is_closed = True
        with self._reading:
            if self._has_left:
                return
            self._has_left = True
            for prepared in self._prepared:
                self._agent.release(prepared)
            if self._is_broken:
                self._agent.leave(self._peer, (self._registered, self._buffer))
            else:
                self._agent.leave(self._peer)
                self._agent.forget(self._registered)

    def _group(self, group: int, strips: list[Strip]) -> _Group:
        rows = self._memory.groups[group]
        size = min(max(1, len(self._buffer) // max(1, self._memory.bytes_per_block(group))), MOST_BLOCKS)
        parts: list[Rows] = []
        start = 0
        for strip in rows:
            end = start + size * strip.shape[1]
            parts.append(self._buffer[start:end].reshape(size, -1))
            start = end
        ours = [(part.ctypes.data, part.shape[1], 0, part.shape[1], size) for part in parts]
        theirs = [(s.offset, s.bytes_per_block, 0, s.bytes_per_block, s.num_blocks) for s in strips]
        counts = np.array([strip.num_blocks for strip in strips], np.int64)
        return _Group(
            self._kept(ours),
            self._kept(theirs, self._peer),
            np.cumsum(counts) - counts,
            int(min(counts, default=0)),
            size,
            self._memory.copier_of(rows, parts),
        )

    def _kept(self, rows: Sequence[tuple[int, ...]], *peer: str) -> Any:
        if not rows:
            return None
        self._prepared.append(self._agent.prepare(np.array(rows, np.uint64), *peer))
        return self._prepared[-1]

    def _fetch(self, group: _Group, sources: I64, patience_s: float) -> None:
        """Has blocks come into the buffer. TransferError if they take longer."""
        deadline = time.monotonic() + patience_s
        slots = np.arange(len(group.firsts)) * group.size
        ours = (slots[:, None] + np.arange(len(sources))).ravel().astype(np.int32)
        theirs = (group.firsts[:, None] + sources).ravel().astype(np.int32)
        if self._is_closed:
            raise TransferError("the channel is closed")
        if not len(theirs):
            return
        self._is_broken = True
        read = self._agent.begin(group.ours, ours, group.theirs, theirs)
        try:
            while not self._agent.is_done(read):
                if self._is_closed:
                    raise TransferError("the channel is closed")
                if time.monotonic() > deadline:
                    raise TransferError(f"the source took longer than {patience_s:g} s")
                time.sleep(POLL_S)
            self._is_broken = False
        finally:
            self._agent.release(read)


def check_strips(memory: BlockMemory, offer: TransferOffer) -> list[Strip]:
    """The strips of an offer. TransferError if they are not as `memory` has them."""
    ours = [rows for group in memory.groups for rows in group]
    strips = list(offer.nixl_strips)
    if len(strips) != len(ours) or any(
        strip.bytes_per_block != rows.shape[1] or not strip.num_blocks
        for strip, rows in zip(strips, ours, strict=True)
    ):
        raise TransferError("the source's memory does not have the blocks that it says")
    return strips
