"""What waits to be written to a stream."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class OutboxFullError(Exception):
    """The peer reads too slowly; its link is to be closed."""


class Outbox(Generic[T]):
    """Items for the one writer task of a stream: it takes all that is there at once, so that items which are ready
    together travel together."""

    def __init__(self, limit: int) -> None:
        self._items: list[T] = []
        self._limit = limit
        self._ready = asyncio.Event()

    def put(self, item: T) -> None:
        """Adds an item; raises OutboxFullError above the limit."""
        if len(self._items) >= self._limit:
            raise OutboxFullError(f"{self._limit} messages wait to be sent")
        self._items.append(item)
        self._ready.set()

    async def take(self) -> list[T]:
        """Waits for items and takes them all."""
        await self._ready.wait()
        self._ready.clear()
        items, self._items = self._items, []
        return items
