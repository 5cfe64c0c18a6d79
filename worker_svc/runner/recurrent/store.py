"""The memory of recurrent states: so many versions of each slot's, and checkpoints of some."""

from __future__ import annotations

import numpy as np
import torch

from worker_svc.core.batch import I32
from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.runner.cpu.huge_pages import allocate
from worker_svc.runner.recurrent.layout import StateLayout


class StateStore:
    """Rows of states. Which version of a slot counts is decided elsewhere; a row is read or written whole."""

    def __init__(
        self,
        layout: StateLayout,
        *,
        num_slots: int,
        num_versions: int,
        num_checkpoints: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        """Takes the memory of all rows, and touches it: what is missing is missed now, not in a step."""
        self.layout, self.num_slots, self.num_versions = layout, num_slots, num_versions
        self._first_checkpoint = num_slots * num_versions
        self.device = torch.device(device)
        self._is_written = np.zeros(num_checkpoints, np.bool_)
        num_rows = self._first_checkpoint + num_checkpoints
        self.layers: dict[int, tuple[torch.Tensor, ...]] = {
            number: tuple(allocate((num_rows, *part.shape), part.dtype, device) for part in layer.parts)
            for number, layer in layout.layers.items()
        }
        self.fill(0)

    def rows_of(self, slots: I32, versions: I32) -> I32:
        """[R] rows of such versions of the slots; `NOTHING` stays `NOTHING`."""
        assert (versions < self.num_versions).all() and (slots < self.num_slots).all()
        rows = slots * np.int32(self.num_versions) + versions
        return np.asarray(np.where(versions == NOTHING, NOTHING, rows), np.int32)

    def save(self, slot: int, version: int, checkpoint: int) -> None:
        """Copies a state into a checkpoint, which is written once until it is `forgotten`."""
        assert not self._is_written[checkpoint], f"checkpoint {checkpoint} is written already"
        self._is_written[checkpoint] = True
        self._copy(self._row(slot, version), self._first_checkpoint + checkpoint)

    def restore(self, checkpoint: int, slot: int, version: int) -> None:
        """Copies a checkpoint into a slot's version."""
        assert self._is_written[checkpoint], f"checkpoint {checkpoint} has no state"
        self._copy(self._first_checkpoint + checkpoint, self._row(slot, version))

    def forget(self, checkpoint: int) -> None:
        """Gives a checkpoint free for another state."""
        self._is_written[checkpoint] = False

    def fill(self, value: float) -> None:
        """Sets every element of every row, so that a read of a row that was never written shows."""
        for parts in self.layers.values():
            for part in parts:
                part.fill_(value)

    def _row(self, slot: int, version: int) -> int:
        return int(self.rows_of(np.array([slot], np.int32), np.array([version], np.int32))[0])

    def _copy(self, source: int, target: int) -> None:
        for parts in self.layers.values():
            for part in parts:
                part[target].copy_(part[source])
