"""How much memory request bodies take that are on their way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from signalbox.errors import limit_reached

RETRY_S = 1.0
"""Bodies come and go."""


class BodyBytes:
    """Bytes of all bodies that are read or understood now."""

    def __init__(self, limit: int) -> None:
        self.num_bytes = 0
        self._limit = limit

    @contextmanager
    def reading(self) -> Iterator[Callable[[int], None]]:
        """Around one body. Its reader says how many bytes have come; raises ResourceExhaustedError when all bodies
        together are too many."""
        mine = 0

        def take(num_bytes: int) -> None:
            nonlocal mine
            if self.num_bytes + num_bytes > self._limit:
                held = f"{self.num_bytes} of {self._limit} bytes of bodies are on their way"
                raise limit_reached(f"max_body_bytes_at_once: {held}, and this one has more", RETRY_S)
            mine += num_bytes
            self.num_bytes += num_bytes

        try:
            yield take
        finally:
            self.num_bytes -= mine
