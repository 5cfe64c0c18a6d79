"""What an operator reads behind an incident: refused keys, and what admin keys did; no key, nothing of a request."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from signalbox.runtime.token_bucket import TokenBucket

logger = logging.getLogger(__name__)

REFUSALS_PER_S = 10.0
MAX_REFUSALS = 100
"""Lines of refused keys at a time: whoever makes up keys does not fill the disk."""
MAX_PATH_CHARS = 256


class AuditLog:
    """Writes a line for each of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines = TokenBucket(MAX_REFUSALS, REFUSALS_PER_S, clock())
        self._num_left_out = 0

    def refused(self, reason: str, key_id: str, path: str, client: str) -> None:
        """A call was refused for its key. `key_id` is what the key says of itself; empty: it is no key of ours."""
        self._lines.refill(self._clock())
        if self._lines.wait_s(1):
            self._num_left_out += 1
            return
        self._lines.take(1)
        fields = {"outcome": reason, "num_left_out": self._num_left_out}
        self._num_left_out = 0
        logger.warning("key refused", extra=fields | _call(key_id, path, client))

    def admin(self, key_id: str, path: str, client: str) -> None:
        """An admin key did what only such keys may do."""
        logger.info("admin call", extra=_call(key_id, path, client))


def _call(key_id: str, path: str, client: str) -> dict[str, str]:
    return {"key_id": key_id, "path": path[:MAX_PATH_CHARS], "client": client}
