"""How near the process is to its memory limit, and which connections end for it. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TypeVar

TIGHT_SHARE, LAST_SHARE = 0.70, 0.85
"""Parts of the limit: above the first no connection is taken, above the second the process ends in order."""
EASY_SHARE = 0.65
"""Below it connections are taken again."""
AHEAD_S, SHORTEST_S = 0.2, 0.01
"""How far ahead the memory in use is foretold, and the shortest time that this is done from."""
KILL_SHARE = 0.96
"""Above it the process ends at once: the kernel would kill it in a moment."""
HEAVY_BYTES = 16 << 10
"""A connection that brought less in the last seconds is never ended for memory."""

K = TypeVar("K")


class Level(IntEnum):
    """What the memory that is in use asks for."""

    EASY = 0
    TIGHT = 1
    """While it rises: no new connections, and those that brought most end."""
    LAST = 2
    """The process ends. It stays so, whatever becomes of the memory."""


def forecast(before_bytes: int, used_bytes: int, after_s: float) -> int:
    """What will be in use AHEAD_S from now, if it goes on as in the last `after_s`; never less than now."""
    rise = max(0, used_bytes - before_bytes)
    return used_bytes + int(rise * AHEAD_S / max(after_s, SHORTEST_S))


def level_of(used_bytes: int, limit_bytes: int, before: Level, soon_bytes: int = 0) -> Level:
    """The level that follows `before`, with so much in use now, and soon."""
    if before is Level.LAST or used_bytes > LAST_SHARE * limit_bytes:
        return Level.LAST
    if soon_bytes > LAST_SHARE * limit_bytes:
        return Level.TIGHT
    bound = EASY_SHARE if before is Level.TIGHT else TIGHT_SHARE
    return Level.TIGHT if used_bytes > bound * limit_bytes else Level.EASY


def heaviest(brought_bytes: Mapping[K, int]) -> list[K]:
    """The connections that brought at least an eighth of what the heaviest did, and HEAVY_BYTES; `brought_bytes` is
    what each has sent in the last seconds. Empty: none is heavy."""
    bound = max(HEAVY_BYTES, max(brought_bytes.values(), default=0) // 8)
    return [key for key, count in brought_bytes.items() if count >= bound]
