"""Copies blocks and checkpoints among the steps of a device and beside them, however many in few launches (TR12)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import numpy as np
import torch

from worker_svc.core.batch import BlockCopy
from worker_svc.runner.cuda.copies.levels import I64, by_level
from worker_svc.runner.cuda.copies.order import Mark, Order
from worker_svc.runner.cuda.copies.rows import DEVICE, HOST, Move, PlacedRows

UNLIKELY = 0xA5
"""A byte that nothing else fills memory with."""


class BlockCopier:
    """Rows of all groups, and the order in which a device copies them."""

    def __init__(self, groups: Sequence[PlacedRows], order: Order, move: Move) -> None:
        """groups: of the spine, of the groups beside it, and of checkpoints, if there are any."""
        self._groups, self._order, self._move = groups, order, move
        self.unsettled: tuple[Mark, ...] = ()
        """What work beside the steps waits for besides: the last that the steps' stream was given and whose end no
        step's results tell. Replaced as a whole, since other threads read it."""

    def copy(self, copies: list[BlockCopy]) -> None:
        """Copies in order, among the steps. The step thread calls it, and nobody waits."""
        self._order.run(lambda: self._make(copies))
        self.note()

    def copies_aside(self, copies: list[BlockCopy]) -> Callable[[], None]:
        """Returns what makes the copies beside the steps, in whatever thread calls it, behind all that was given to
        these before this call. It returns when they are made (X5)."""
        before = self.mark()
        return lambda: self.run_aside(lambda: self._make(copies), before)

    def mark(self) -> tuple[Mark, ...]:
        """What work waits for that is behind all that the steps' stream was given so far. The step thread calls it."""
        return (self._order.mark(),)

    def note(self) -> None:
        """The steps' stream was given something whose end no step's results tell: copies, or what a launch that failed
        left behind (TR14). The step thread calls it."""
        with contextlib.suppress(RuntimeError):  # a broken device does nothing more
            self.unsettled = self.mark()

    def run_aside(self, work: Callable[[], None], after: Sequence[Mark]) -> None:
        """Has work done beside the steps, behind `after`; returns when it has ended."""
        self._order.run_aside(work, after).synchronize()

    def move(self, rows: PlacedRows, columns: I64) -> None:
        """Copies rows on the current stream, at once; see `Move`."""
        with torch.inference_mode():
            if len(columns) and rows.row_bytes:
                self._move(rows, columns)

    def prove(self, rows: PlacedRows) -> None:
        """Copies a row to each place on the host, so that what has to be compiled is compiled now. RuntimeError if it
        does not arrive."""
        for place, tensors in enumerate(rows.tensors):
            if place == DEVICE or not tensors or not all(map(len, (*tensors, *rows.tensors[DEVICE]))):
                continue
            for target in tensors:
                target[0].view(torch.uint8).fill_(UNLIKELY)
            columns = np.array([[DEVICE, 0, place, 0]], np.int64)
            self.run_aside(lambda columns=columns: self.move(rows, columns), self.mark())  # type: ignore[misc]
            if not all(map(are_alike, rows.tensors[DEVICE], tensors)):
                raise RuntimeError("a block that was copied to the host is another there")

    def _make(self, copies: list[BlockCopy]) -> None:
        for group in sorted({copy.group for copy in copies}):
            columns = np.array(
                [
                    (HOST if of_host else DEVICE, source, HOST if to_host else DEVICE, target)
                    for source, of_host, target, to_host, number in copies
                    if number == group
                ],
                np.int64,
            )
            for some in by_level(columns):
                self.move(self._groups[group], some)


def are_alike(own: torch.Tensor, host: torch.Tensor) -> bool:
    """Whether the first rows of two tensors have the same bytes."""
    return torch.equal(own[0].cpu().view(torch.uint8), host[0].view(torch.uint8))
