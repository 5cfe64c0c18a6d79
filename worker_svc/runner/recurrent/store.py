"""The memory of recurrent states: so many versions of each slot's, its last boundary's, and checkpoints, on the device
and in the host tier."""

from __future__ import annotations

import numpy as np
import torch

from worker_svc.core.batch import I32, BlockCopy, StateCopy
from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.runner.cpu.huge_pages import allocate
from worker_svc.runner.cuda.copies.pinned import host_empty
from worker_svc.runner.recurrent.layout import StateLayout


def rows_per_slot(num_versions: int, num_checkpoints: int) -> int:
    """States that each slot takes memory for: its versions and, where there are checkpoints, its last boundary's."""
    return num_versions + (num_checkpoints > 0)


class StateStore:
    """Rows of states. Which version of a slot counts is decided elsewhere; a row is read or written whole."""

    def __init__(
        self,
        layout: StateLayout,
        *,
        num_slots: int,
        num_versions: int,
        num_checkpoints: int = 0,
        num_host_checkpoints: int = 0,
        num_drafts: int = 0,
        width: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        """Takes the memory of all rows, and touches it: what is missing is missed now, not in a step. num_drafts: the
        most that a row has; of each a layer is given `width` numbers."""
        self.layout, self.num_slots, self.num_versions = layout, num_slots, num_versions
        self.num_checkpoints, self.num_host_checkpoints = num_checkpoints, num_host_checkpoints
        self.num_drafts, self.width = num_drafts, width
        self._rows_per_slot = rows_per_slot(num_versions, num_checkpoints)
        self._first_checkpoint = num_slots * self._rows_per_slot
        self.device = torch.device(device)
        num_rows = self._first_checkpoint + num_checkpoints
        self.layers: dict[int, tuple[torch.Tensor, ...]] = {
            number: tuple(allocate((num_rows, *part.shape), part.dtype, device) for part in layer.parts)
            for number, layer in layout.layers.items()
        }
        self.host_layers: dict[int, tuple[torch.Tensor, ...]] = {
            number: tuple(
                host_empty(
                    (num_host_checkpoints, *part.shape), part.dtype, is_pinned=self.device.type == "cuda"
                )
                for part in layer.parts
            )
            for number, layer in layout.layers.items()
        }
        """Checkpoints in the host tier."""
        self.drafts: dict[int, torch.Tensor] = {
            number: allocate((self._first_checkpoint, num_drafts, width), layer.conv.dtype, device)
            for number, layer in layout.layers.items()
            if num_drafts
        }
        """[rows, K, H] by layer: what it was given for the drafts behind each state of a slot."""
        self.fill(0)

    def rows_of(self, slots: I32, versions: I32) -> I32:
        """[R] rows of such versions of the slots; `NOTHING` stays `NOTHING`, and the version behind the last is that of
        the last boundary, where there are checkpoints."""
        assert (versions < self._rows_per_slot).all() and (slots < self.num_slots).all()
        rows = slots * np.int32(self._rows_per_slot) + versions
        return np.asarray(np.where(versions == NOTHING, NOTHING, rows), np.int32)

    def row_of_keep(self, slot: int, checkpoint: int) -> int:
        """The row that a state is kept in: a checkpoint's; `NOTHING`: that of the slot's last boundary."""
        if checkpoint == NOTHING:
            return self.row(slot, self.num_versions)
        assert checkpoint < self.num_checkpoints
        return self._first_checkpoint + checkpoint

    def copy(self, copies: list[StateCopy]) -> None:
        """Makes the copies, in order."""
        for slot, version, checkpoint, is_restored in copies:
            row, kept = self.row(slot, version), self._first_checkpoint + checkpoint
            assert 0 <= checkpoint < self.num_checkpoints
            self._copy(*((kept, row) if is_restored else (row, kept)))

    def copy_checkpoint(self, copy: BlockCopy) -> None:
        """Copies one checkpoint of all layers between device and host tier."""
        for number, parts in self.layers.items():
            for part, saved in zip(parts, self.host_layers[number], strict=True):
                checkpoints = part[self._first_checkpoint :]
                source = saved if copy.source_is_host else checkpoints
                target = saved if copy.target_is_host else checkpoints
                target[copy.target].copy_(source[copy.source])

    @property
    def checkpoints(self) -> list[torch.Tensor]:
        """The parts of all layers' checkpoints, `[num_checkpoints, ...]`, in the order of the layers."""
        return [part[self._first_checkpoint :] for _, layer in sorted(self.layers.items()) for part in layer]

    @property
    def host_checkpoints(self) -> list[torch.Tensor]:
        """The parts of checkpoints in the host tier, in the order of `checkpoints`; none, if it has no places."""
        layers = sorted(self.host_layers.items()) if self.num_host_checkpoints else []
        return [part for _, layer in layers for part in layer]

    def fill(self, value: float) -> None:
        """Sets every element of every row, so that a read of a row that was never written shows."""
        for parts in (*self.layers.values(), *self.host_layers.values()):
            for part in parts:
                part.fill_(value)
        for inputs in self.drafts.values():
            inputs.fill_(value)

    def row(self, slot: int, version: int) -> int:
        """The row of a version of a slot."""
        return int(self.rows_of(np.array([slot], np.int32), np.array([version], np.int32))[0])

    def _copy(self, source: int, target: int) -> None:
        for parts in self.layers.values():
            for part in parts:
                part[target].copy_(part[source])
