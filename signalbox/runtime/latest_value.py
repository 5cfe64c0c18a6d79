"""A value that is replaced again and again, for readers that only want the newest."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class LatestValue(Generic[T]):
    """Any number of readers in one event loop; a slow one misses values, and holds up nobody."""

    def __init__(self) -> None:
        self._value: T | None = None
        self._changed = asyncio.Event()

    def put(self, value: T) -> None:
        """Replaces the value and wakes the readers."""
        self._value = value
        self._changed.set()
        self._changed = asyncio.Event()

    def clear(self) -> None:
        """There is no value until the next one."""
        self._value = None

    async def other_than(self, seen: T | None) -> T:
        """The value as soon as there is one that is not `seen`."""
        while self._value is None or self._value is seen:
            await self._changed.wait()
        return self._value
