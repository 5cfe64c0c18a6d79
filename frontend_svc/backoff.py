"""How long to wait before a link is opened again."""

from __future__ import annotations

import random

FIRST_S = 0.1
LARGEST_S = 2.0


class Backoff:
    """Doubles from FIRST_S to LARGEST_S, with a random part so that all frontends do not come at once."""

    def __init__(self) -> None:
        self._failures = 0

    @property
    def is_first(self) -> bool:
        """No attempt has failed since the link was last up."""
        return self._failures == 0

    def reset(self) -> None:
        """The link is up."""
        self._failures = 0

    def next_s(self) -> float:
        """Seconds to wait now."""
        delay = min(LARGEST_S, FIRST_S * 2.0 ** min(self._failures, 10))
        self._failures += 1
        return delay * random.uniform(0.5, 1.0)
