"""What an operator reads behind an incident: refused keys, and what admin keys did; no key, nothing of a request."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from signalbox.runtime.bounded_lines import BoundedLines

logger = logging.getLogger(__name__)

MAX_PATH_CHARS = 256


class AuditLog:
    """Writes a line for each of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lines = BoundedLines(clock)

    def refused(self, reason: str, key_id: str, path: str, client: str) -> None:
        """A call was refused for its key. `key_id` is what the key says of itself; empty: it is no key of ours."""
        num_left_out = self._lines.take()
        if num_left_out is None:
            return
        fields = {"outcome": reason, "num_left_out": num_left_out}
        logger.warning("key refused", extra=fields | _call(key_id, path, client))

    def admin(self, key_id: str, path: str, client: str) -> None:
        """An admin key did what only such keys may do."""
        logger.info("admin call", extra=_call(key_id, path, client))


def _call(key_id: str, path: str, client: str) -> dict[str, str]:
    return {"key_id": key_id, "path": path[:MAX_PATH_CHARS], "client": client}
