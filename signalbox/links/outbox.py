"""What waits to be written to a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
MAX_BATCH_BYTES = 8 << 20
"""Above it, items that are ready together travel in several messages: far below rpc.MAX_MESSAGE_BYTES, so that one
item may be large."""


class OutboxFullError(Exception):
    """The peer reads too slowly; its link is to be closed."""


class Outbox(Generic[T]):
    """Items for the one writer task of a stream: it takes all that is there at once, so that items which are ready
    together travel together."""

    def __init__(
        self, limit: int, max_bytes: int | None = None, size_of: Callable[[T], int] | None = None
    ) -> None:
        """Holds `limit` items at most, and about `max_bytes` by `size_of`: one more item may always come on top. None:
        bytes are not counted."""
        self._items: list[T] = []
        self._limit, self._max_bytes, self._size_of = limit, max_bytes, size_of
        self._num_bytes = 0
        self._ready = asyncio.Event()

    def __len__(self) -> int:
        """How many messages wait."""
        return len(self._items)

    def put(self, item: T) -> None:
        """Adds an item; raises OutboxFullError above the limits."""
        if len(self._items) >= self._limit:
            raise OutboxFullError(f"{self._limit} messages wait to be sent")
        if self._max_bytes is not None and self._size_of is not None:
            if self._num_bytes > self._max_bytes:
                raise OutboxFullError(f"{self._num_bytes} bytes wait to be sent")
            self._num_bytes += self._size_of(item)
        self._items.append(item)
        self._ready.set()

    async def take(self, linger_s: float = 0.0) -> list[T]:
        """Waits for items, then `linger_s` for more, and takes them all."""
        await self._ready.wait()
        if linger_s:
            await asyncio.sleep(linger_s)
        self._ready.clear()
        items, self._items, self._num_bytes = self._items, [], 0
        return items


def split(items: list[T], size_of: Callable[[T], int], max_bytes: int) -> Iterator[list[T]]:
    """The items in order, in parts of at most `max_bytes`; one that is larger goes alone."""
    part: list[T] = []
    room = max_bytes
    for item in items:
        size = size_of(item)
        if part and size > room:
            yield part
            part, room = [], max_bytes
        part.append(item)
        room -= size
    if part:
        yield part
