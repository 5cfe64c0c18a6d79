"""What a key has taken of its limits. Counted by each frontend process for itself."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from frontend_svc.access.keys import Key
from signalbox.errors import PermissionDeniedError, limit_reached

AT_ONCE_RETRY_S = 1.0
"""Nobody knows when a request ends."""


class Bucket:
    """Holds a minute's worth and fills evenly. What is larger than that is let through when the bucket is full, and
    what is known only afterwards is taken afterwards: the level falls below zero, and has to rise again first."""

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        self._level = float(per_minute)
        self._at_s = now

    def wait_s(self, count: int, now: float) -> float:
        """Seconds until `count` can be taken; 0: now."""
        missing = min(count, self.per_minute) - self.level(now)
        return max(0.0, missing * 60 / self.per_minute)

    def take(self, count: int, now: float) -> None:
        """Below zero if need be."""
        self._level = self.level(now) - count

    def resize(self, per_minute: int, now: float) -> None:
        """Another limit; what was taken stays taken."""
        taken = self.per_minute - self.level(now)
        self.per_minute = per_minute
        self._level = per_minute - taken

    def level(self, now: float) -> float:
        """What can be taken; below zero: what has to come first."""
        self._level = min(self.per_minute, self._level + (now - self._at_s) * self.per_minute / 60)
        self._at_s = now
        return self._level


class Usage:
    """Of one key, over all changes of its entry."""

    def __init__(self, key: Key, clock: Callable[[], float] = time.monotonic) -> None:
        self.num_open = 0
        """Requests let in that have not ended."""
        self._clock = clock
        self._at_once: int | None = None
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None
        self.follow(key)

    def follow(self, key: Key) -> None:
        """Takes over the limits of `key`."""
        now = self._clock()
        self._at_once = key.requests_at_once
        self._requests = _adjust(self._requests, key.requests_per_minute, now)
        self._tokens = _adjust(self._tokens, key.tokens_per_minute, now)

    def enter(self, count: int) -> Ticket:
        """Lets `count` requests in, all or none, before anything is known of them.

        Raises ResourceExhaustedError with the time to wait, PermissionDeniedError for more than can ever run at once.
        """
        now = self._clock()
        if self._at_once is not None and count > self._at_once:
            message = f"the call asks for {count} choices; this key may have {self._at_once} requests at once"
            raise PermissionDeniedError(message, field="n")
        if self._at_once is not None and self.num_open + count > self._at_once:
            now_open = f"this key has {self.num_open} of {self._at_once} requests at once"
            message = f"requests_at_once: {now_open}, and {count} more are asked for"
            raise limit_reached(message, AT_ONCE_RETRY_S)
        _check(self._requests, count, now, "requests")
        _check(self._tokens, 1, now, "tokens")
        if self._requests is not None:
            self._requests.take(count, now)
        self.num_open += count
        return Ticket(self, count)

    def take_prompt(self, num_tokens: int) -> None:
        """Raises ResourceExhaustedError when the prompt has to wait."""
        now = self._clock()
        _check(self._tokens, num_tokens, now, "tokens")
        self.take_tokens(num_tokens)

    def take_tokens(self, num_tokens: int) -> None:
        """Of an output, which was not known before."""
        if self._tokens is not None:
            self._tokens.take(num_tokens, self._clock())


class Ticket:
    """Lets the requests of one call in; each gives its place back when it ends, the others when the call is open."""

    def __init__(self, usage: Usage, count: int) -> None:
        self._usage = usage
        self._num_unused = count

    def take_prompt(self, num_tokens: int) -> None:
        """The prompt of one or more choices, counted once. Raises ResourceExhaustedError when it has to wait."""
        self._usage.take_prompt(num_tokens)

    def start(self) -> None:
        """A request of the call has begun; it calls `end`."""
        assert self._num_unused > 0
        self._num_unused -= 1

    def end(self, num_output_tokens: int) -> None:
        """A request that has begun has ended."""
        self._usage.num_open -= 1
        self._usage.take_tokens(num_output_tokens)

    def close(self) -> None:
        """No more requests begin."""
        self._usage.num_open -= self._num_unused
        self._num_unused = 0


def _adjust(bucket: Bucket | None, per_minute: int | None, now: float) -> Bucket | None:
    if per_minute is None:
        return None
    if bucket is None:
        return Bucket(per_minute, now)
    bucket.resize(per_minute, now)
    return bucket


def _check(bucket: Bucket | None, count: int, now: float, what: str) -> None:
    if bucket is not None and (wait_s := bucket.wait_s(count, now)):
        level = math.floor(max(bucket.level(now), 0))
        left = f"this key has {level} left of its {bucket.per_minute} {what} per minute"
        message = f"{what}_per_minute: {left}, and {count} more are asked for"
        raise limit_reached(message, wait_s)
