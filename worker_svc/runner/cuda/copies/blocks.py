"""Blocks of a device as bytes, for hand-offs and pulls, and for a disk; and recurrent states (TR12 to TR15)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from worker_svc.runner.attention.kv_cache import KVCache
from worker_svc.runner.attention.layer_groups import CacheLayout
from worker_svc.runner.cuda.copies.copier import BlockCopier
from worker_svc.runner.cuda.copies.levels import I64
from worker_svc.runner.cuda.copies.order import Order
from worker_svc.runner.cuda.copies.rows import U8, Move, PlacedRows
from worker_svc.runner.cuda.copies.staging import Stage, StagedCopies
from worker_svc.runner.recurrent.state_bytes import all_tensors, read_row, write_row
from worker_svc.runner.recurrent.store import StateStore
from worker_svc.transfer.block_memory import checked_ids, content_of, digest_of
from worker_svc.transfer.errors import TransferError

I32 = NDArray[np.int32]


class DeviceBlocks:
    """What is copied of a device's memory: by `copier` to and from the host tier, else as bytes, which any thread may
    ask for. To hand-offs and pulls it is a `LaidOut`, to a disk a `worker_svc.disk.memory.BlockMemory`."""

    def __init__(
        self, cache: KVCache, layout: CacheLayout, store: StateStore | None, order: Order, move: Move
    ) -> None:
        """store: recurrent states; None: the model has none. Compiles what it will launch, and tries it. RuntimeError
        where the device does not reach memory of the host; ModelLoadError where none can be pinned."""
        self._counts = [layout.num_blocks, *(kind.num_blocks for kind in layout.groups)]
        numbers = range(len(self._counts))
        own = [cache.stored_in(number) for number in numbers]
        states = [] if store is None else [all_tensors(store)]
        stage = Stage([*own, *states], is_pinned=cache.layers[0].keys.is_cuda)
        self.num_staged_bytes = stage.num_bytes
        """Pinned beside the host tier."""
        self._groups = [
            PlacedRows(own[number], cache.host_stored_in(number), stage.groups[number]) for number in numbers
        ]
        copied = list(self._groups)
        self._states: _States | None = None
        if store is not None:
            copied.append(PlacedRows(store.checkpoints, store.host_checkpoints))
            self._states = _States(store, PlacedRows(states[0], (), stage.groups[-1]))
        self.copier = BlockCopier(copied, order, move)
        for rows in copied if self._states is None else [*copied, self._states.rows]:
            self.copier.prove(rows)
        self._staged = StagedCopies(self.copier)
        contents = [[_content_of(tensor) for tensor in tensors] for tensors in own]
        self.digest = digest_of(contents, layout.groups, cache.block_size)
        """As that of blocks on a CPU: what is read of one the other takes."""

    # -- hand-offs and pulls --

    def bytes_per_block(self, group: int) -> int:
        """Bytes of a block in all layers of its group."""
        return self._groups[group].num_bytes

    def read(self, group: int, blocks: Sequence[int]) -> bytes:
        """The bytes of `blocks`: tensor by tensor, in each the blocks in the order given. TransferError where there are
        none such, or the device fails."""
        ids = checked_ids(group, blocks, self._counts)
        rows = self._groups[group]
        content = np.empty(len(ids) * rows.num_bytes, np.uint8)
        with _failing_alone("read"):
            self._staged.read(rows, ids, _by_tensor(content, len(ids), rows))
        return content.tobytes()

    def write(self, group: int, blocks: Sequence[int], content: bytes) -> None:
        """Writes what `read` gave elsewhere. TransferError as there, and if the number of bytes is another; nothing is
        written then."""
        ids = checked_ids(group, blocks, self._counts)
        rows = self._groups[group]
        expected = len(ids) * rows.num_bytes
        if len(content) != expected:
            raise TransferError(
                f"{len(ids)} blocks of group {group} have {expected} bytes, not {len(content)}"
            )
        with _failing_alone("written"):
            self._staged.write(rows, ids, _by_tensor(np.frombuffer(content, np.uint8), len(ids), rows))

    def read_state(self, slot: int, version: int, num_drafts: int) -> bytes:
        """The bytes of a slot's recurrent state; see `HandoffRunner`."""
        assert self._states is not None, "the model has no recurrent layers"
        states, found = self._states, _OneState(self._states.store)
        with _failing_alone("read"):
            self._staged.read(states.rows, states.ids(slot, version), found.rows)
        return read_row(found, 0, num_drafts)

    def write_state(self, slot: int, version: int, num_drafts: int, content: bytes) -> None:
        """Puts back what `read_state` gave; see `HandoffRunner`."""
        if self._states is None:
            raise TransferError("the model keeps no states")
        states, read = self._states, _OneState(self._states.store)
        write_row(read, 0, num_drafts, content)
        with _failing_alone("written"):
            self._staged.write(states.rows, states.ids(slot, version), read.rows)

    # -- a disk --

    def record_bytes(self) -> list[int]:
        """Bytes of a block of each group."""
        return [rows.num_bytes for rows in self._groups]

    def reads_aside(self, group: int, blocks: I32) -> Callable[[], U8]:
        """Returns what reads blocks; see `BlockMemory` of a disk."""
        after, rows, ids = self.copier.mark(), self._groups[group], blocks.astype(np.int64)

        def read() -> U8:
            content = np.empty((len(ids), rows.num_bytes), np.uint8)
            self._staged.read(rows, ids, _by_block(content, rows), after)
            return content

        return read

    def writes_aside(self, group: int, blocks: I32) -> Callable[[U8], None]:
        """Returns what writes blocks; see `BlockMemory` of a disk."""
        after, rows, ids = self.copier.mark(), self._groups[group], blocks.astype(np.int64)
        return lambda content: self._staged.write(rows, ids, _by_block(content, rows), after)


class _States:
    """Where the recurrent states of slots are."""

    def __init__(self, store: StateStore, rows: PlacedRows) -> None:
        self.store, self.rows = store, rows

    def ids(self, slot: int, version: int) -> I64:
        """[1] the row of a version of a slot."""
        return np.array([self.store.row(slot, version)], np.int64)


class _OneState:
    """A recurrent state on the host, with what drafts gave to the layers: `KeptStates` of one row."""

    def __init__(self, store: StateStore) -> None:
        self.layers = {
            number: tuple(_zeros_like_row(part) for part in parts) for number, parts in store.layers.items()
        }
        self.drafts = {number: _zeros_like_row(drafts) for number, drafts in store.drafts.items()}

    @property
    def rows(self) -> list[U8]:
        """[1, row_bytes] of each tensor."""
        return [tensor.view(1, -1).view(torch.uint8).numpy() for tensor in all_tensors(self)]


def _zeros_like_row(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros((1, *tensor.shape[1:]), dtype=tensor.dtype)


def _content_of(tensor: torch.Tensor) -> str:
    return content_of(str(tensor.dtype).removeprefix("torch."), tensor.shape[1:])


def _by_tensor(content: U8, count: int, rows: PlacedRows) -> list[U8]:
    """Content of so many blocks, tensor by tensor: `[count, row_bytes]` each."""
    ends = np.cumsum([count * size for size in rows.row_bytes])[:-1]
    return [part.reshape(count, -1) if count else part.reshape(0, 0) for part in np.split(content, ends)]


def _by_block(content: U8, rows: PlacedRows) -> list[U8]:
    """Content `[N, num_bytes]`, block by block, as `[N, row_bytes]` of each tensor."""
    return np.split(content, np.cumsum(rows.row_bytes)[:-1], axis=1)


@contextmanager
def _failing_alone(what: str) -> Iterator[None]:
    """A device that fails is found by the steps; the transfer ends."""
    try:
        yield
    except RuntimeError as error:
        raise TransferError(f"blocks or states could not be {what} on the device: {error}") from error
