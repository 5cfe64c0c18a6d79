"""What of a slot may be read or written beside the steps, for as long as that may go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from signalbox.protocol.enums import ReadFault
from worker_svc.transfer.errors import TransferError


class Gate:
    """Any thread may ask. Whoever closes it waits for the one piece that is read or written."""

    def __init__(self, num_groups: int = 1) -> None:
        self._lock = threading.Lock()
        """Held while a piece is read or written."""
        self._closing = threading.Lock()
        self._is_closed = False
        self._firsts = [0] * num_groups
        self._closers: list[Callable[[], None]] = []
        """What ends reads and writes that may have to wait for another worker."""

    @contextmanager
    def passing(self) -> Iterator[list[int]]:
        """While it lasts nothing of the slot is given away. Yields, by group, the index of the first block that is
        still the slot's. TransferError if it is closed."""
        with self._lock:
            if self._is_closed:
                raise TransferError("the hand-off is over", ReadFault.WITHDRAWN)
            yield self._firsts

    def leave_behind(self, firsts: list[int]) -> None:
        """Blocks ahead of these indexes, by group, are no more the slot's."""
        if firsts != self._firsts:
            with self._lock:
                self._firsts = firsts

    def on_close(self, closer: Callable[[], None]) -> None:
        """Has `closer` called when this is closed, or at once if it is: it returns when what it ends has ended."""
        with self._closing:
            if not self._is_closed:
                self._closers.append(closer)
                return
        closer()

    def close(self) -> None:
        """Nothing is read or written any more behind this."""
        with self._closing:
            self._is_closed = True
            closers, self._closers = self._closers, []
        for closer in closers:
            closer()
        with self._lock:  # the piece that is under way
            pass
