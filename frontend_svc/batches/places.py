"""How many lines of batches run at once: few beside other requests, more without."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

LOOK_S = 0.1
"""How often to look whether others have ended, in seconds."""


class Places:
    """Places for lines, of all batches of a process."""

    def __init__(self, most: int, most_beside: int, is_busy: Callable[[], bool]) -> None:
        """`most_beside` holds while `is_busy`: other requests are open. Lines that run are left to end."""
        self._most, self._most_beside, self._is_busy = most, min(most, most_beside), is_busy
        self._num_taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        """Takes a place, which has to be released."""
        while not self._has_room():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await asyncio.wait([waiter], timeout=LOOK_S)
            finally:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
        self._num_taken += 1

    def release(self) -> None:
        """Gives a place back to whoever has waited longest."""
        self._num_taken -= 1
        if self._waiting:
            self._waiting.popleft().set_result(None)

    def _has_room(self) -> bool:
        if self._num_taken < self._most_beside:
            return True
        return self._num_taken < self._most and not self._is_busy()


class Place:
    """A place that was taken: it is given back once, however often it is released."""

    def __init__(self, places: Places) -> None:
        self._places: Places | None = places

    def release(self) -> None:
        """Gives it back, unless that was done."""
        places, self._places = self._places, None
        if places is not None:
            places.release()
