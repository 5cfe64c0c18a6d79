"""Cuts a long look at many things into pieces, between which the event loop does what else there is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

PIECE_COST = 1 << 19
"""Cost of one piece, in elements of a numpy array that are compared: some 20 ms."""
OBJECT_COST = 16
"""Cost of an element that is a Python object."""
TABLE_COST = 1024
"""Cost of the block table of a slot."""


class Pieces:
    """What was done since the last piece ended."""

    def __init__(self) -> None:
        self._cost = 0

    def is_full(self, cost: int) -> bool:
        """Adds what was just done. True: the piece has ended, and the caller yields."""
        self._cost += cost
        if self._cost < PIECE_COST:
            return False
        self._cost = 0
        return True


def do_all(pieces: Iterable[None]) -> None:
    """All of them at once."""
    deque(pieces, maxlen=0)
