"""Recurrent states as bytes, for whoever takes a request over (docs/design.md, HO5): layer by layer, each part of its
state, and then what drafts behind it gave to the layer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Protocol

import torch

from worker_svc.runner.recurrent.store import StateStore
from worker_svc.transfer.block_memory import LaidOut
from worker_svc.transfer.errors import TransferError


class KeptStates(Protocol):
    """Tensors of states `[rows, ...]`."""

    @property
    def layers(self) -> dict[int, tuple[torch.Tensor, ...]]:
        """The parts of each layer's state, by its number."""

    @property
    def drafts(self) -> dict[int, torch.Tensor]:
        """[rows, K, H] by layer: what it was given for drafts; empty: there are none."""


def layout_of(memory: LaidOut | None, store: StateStore | None) -> str:
    """Digest of how blocks and states are laid out; workers of one can take requests over from each other. Empty: there
    are no blocks that travel."""
    if memory is None:
        return ""
    lines = [memory.digest]
    if store is not None:
        for number, layer in sorted(store.layout.layers.items()):
            lines += [f"layer {number} {part.dtype} {tuple(part.shape)}" for part in layer.parts]
        lines += [f"drafts {number} {tuple(each.shape[1:])}" for number, each in sorted(store.drafts.items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def state_sizes(store: StateStore | None) -> tuple[int, int]:
    """Bytes of a state, and of what each draft behind it adds."""
    if store is None:
        return 0, 0
    return store.layout.bytes_per_row, store.layout.bytes_of_drafts(1, store.width)


@torch.inference_mode()
def read_state(store: StateStore | None, slot: int, version: int, num_drafts: int) -> bytes:
    """The state in a version of a slot, with so many drafts behind it."""
    assert store is not None, "the model has no recurrent layers"
    return read_row(store, store.row(slot, version), num_drafts)


def read_row(kept: KeptStates, row: int, num_drafts: int) -> bytes:
    """The state in a row, with so many drafts behind it."""
    tensors = _tensors(kept, row, num_drafts)
    return b"".join(tensor.contiguous().view(torch.uint8).numpy().tobytes() for tensor in tensors)


@torch.inference_mode()
def write_state(store: StateStore | None, slot: int, version: int, num_drafts: int, content: bytes) -> None:
    """Puts what `read_state` gave elsewhere into a version of a slot. TransferError if it has another size; nothing is
    written then."""
    if store is None:
        raise TransferError("the model keeps no states")
    write_row(store, store.row(slot, version), num_drafts, content)


@torch.inference_mode()
def write_row(kept: KeptStates, row: int, num_drafts: int, content: bytes) -> None:
    """Puts what `read_row` gave into a row; see `write_state`."""
    if num_drafts > max((drafts.shape[1] for drafts in kept.drafts.values()), default=0):
        raise TransferError(f"a state has no {num_drafts} drafts behind it here")
    tensors = list(_tensors(kept, row, num_drafts))
    expected = sum(tensor.nbytes for tensor in tensors)
    if len(content) != expected:
        raise TransferError(f"a state has {expected} bytes, not {len(content)}")
    if not content:  # the layers that keep states are all elsewhere
        return
    whole, start = torch.frombuffer(bytearray(content), dtype=torch.uint8), 0
    for tensor in tensors:
        part = whole[start : start + tensor.nbytes].clone()  # aligned for its type
        tensor.copy_(part.view(tensor.dtype).view(tensor.shape))
        start += tensor.nbytes


def all_tensors(kept: KeptStates) -> list[torch.Tensor]:
    """All that there are, in the order of the layers."""
    parts = [part for _, layer in sorted(kept.layers.items()) for part in layer]
    return parts + [drafts for _, drafts in sorted(kept.drafts.items())]


def _tensors(kept: KeptStates, row: int, num_drafts: int) -> Iterator[torch.Tensor]:
    """Views of the rows of all layers, in the order in which they travel."""
    for number, parts in sorted(kept.layers.items()):
        yield from (part[row] for part in parts)
        if num_drafts:
            yield kept.drafts[number][row, :num_drafts]
