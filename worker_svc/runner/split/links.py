"""Hidden states on their way from one stage of a pipeline to the next, over torch's own group for CPUs."""

from __future__ import annotations

from typing import Any

import torch

RIGHT, WRONG = 0, 1
"""The last byte of what is sent: whether states come, or word that there are none."""
TAG = 1


class StageBeforeError(Exception):
    """The stage before has failed in the call: there are no states."""


class StageLink:
    """The neighbours of a rank. One thread calls it; batches go in the order of the log (RK13)."""

    def __init__(self, group: Any, before: int | None, behind: int | None) -> None:
        """group: torch's, of all ranks. before, behind: the ranks that states come from and go to; None: none."""
        self._group, self._before, self._behind = group, before, behind
        self._sent: tuple[Any, torch.Tensor] | None = None
        self.num_bytes = 0
        """Sent so far."""

    def send(self, states: torch.Tensor | None, num_bytes: int) -> None:
        """Sends the states of a batch to the stage behind, if there is one; None: word that there are none, in as many
        bytes. Waits until those of the batch before have gone, not these. RuntimeError when that stage is gone."""
        if self._behind is None:
            return
        self.settle()
        message = torch.empty(num_bytes + 1, dtype=torch.uint8)
        if states is not None:
            message[:-1] = states.contiguous().view(-1).view(torch.uint8)
        message[-1] = WRONG if states is None else RIGHT
        self._sent = self._group.send([message], self._behind, TAG), message
        self.num_bytes += len(message)

    def settle(self) -> None:
        """Waits until what was sent last has gone: its memory is used until then."""
        if self._sent is not None:
            work, _ = self._sent
            self._sent = None
            work.wait()

    def receive(self, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
        """The states `[T, H]` of the next batch. StageBeforeError where there are none; RuntimeError when the stage
        before is gone."""
        size = shape[0] * shape[1] * dtype.itemsize
        message = torch.empty(size + 1, dtype=torch.uint8)
        self._group.recv([message], self._before, TAG).wait()
        if int(message[-1]) != RIGHT:
            raise StageBeforeError("the stage before has failed")
        return message[:-1].view(dtype).view(shape)
