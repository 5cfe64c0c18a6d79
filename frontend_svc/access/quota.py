"""What a key has taken of its limits. Counted by each frontend process for itself."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from frontend_svc.access.keys import Key
from signalbox.errors import PermissionDeniedError, limit_reached
from signalbox.runtime.token_bucket import TokenBucket

AT_ONCE_RETRY_S = 1.0
"""What a client is told to wait, in seconds: nobody knows when a request ends."""


class KeyQuota:
    """What one key may still take, over all changes of its entry. A bucket holds a minute's worth."""

    def __init__(self, key: Key, clock: Callable[[], float] = time.monotonic) -> None:
        self.num_open = 0
        """Requests let in that have not ended."""
        self._clock = clock
        self._at_once: int | None = None
        self._requests: TokenBucket | None = None
        self._tokens: TokenBucket | None = None
        self.follow(key)

    def follow(self, key: Key) -> None:
        """Takes over the limits of `key`."""
        now = self._clock()
        self._at_once = key.requests_at_once
        self._requests = _adjust(self._requests, key.requests_per_minute, now)
        self._tokens = _adjust(self._tokens, key.tokens_per_minute, now)

    def take(self, count: int) -> QuotaLease:
        """Takes the places of `count` requests, all or none, before anything is known of them.

        Raises ResourceExhaustedError with the time to wait, PermissionDeniedError for more than can ever run at once.
        """
        self.require(count)
        if self._requests is not None:
            self._requests.take(count)
        self.num_open += count
        return QuotaLease(self, count)

    def require(self, count: int) -> None:
        """Raises what `take` raises, and takes nothing."""
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

    def require_half(self) -> None:
        """Raises ResourceExhaustedError with the time to wait where less than half of a limit is left: a batch leaves
        that to the other calls of its key."""
        if self._at_once is not None and self.num_open >= max(1, self._at_once // 2):
            raise limit_reached("requests_at_once: a batch may have half of them", AT_ONCE_RETRY_S)
        now = self._clock()
        _check(self._requests, _half(self._requests), now, "requests")
        _check(self._tokens, _half(self._tokens), now, "tokens")

    def tell(self) -> list[tuple[str, str]]:
        """Limits per minute, what is left of them, and when they are whole again, by OpenAI's names."""
        told = []
        now = self._clock()
        for name, bucket in (("requests", self._requests), ("tokens", self._tokens)):
            if bucket is not None:
                bucket.refill(now)
                told.append((f"limit-{name}", str(bucket.size)))
                told.append((f"remaining-{name}", str(math.floor(max(bucket.level, 0)))))
                told.append((f"reset-{name}", f"{bucket.wait_s(bucket.size):.3g}s"))
        return told

    def take_prompt(self, num_tokens: int) -> None:
        """Raises ResourceExhaustedError when the prompt has to wait."""
        now = self._clock()
        _check(self._tokens, num_tokens, now, "tokens")
        self.take_tokens(num_tokens)

    def take_tokens(self, num_tokens: int) -> None:
        """Takes the tokens of an output, which were not known before; it may go below zero."""
        if self._tokens is not None:
            self._tokens.refill(self._clock())
            self._tokens.take(num_tokens)


class QuotaLease:
    """Places of one call among the open requests of its key: each is given back when its request ends, those without a
    request when the call is open."""

    def __init__(self, quota: KeyQuota, count: int) -> None:
        self._quota = quota
        self._num_unused = count

    def take_prompt(self, num_tokens: int) -> None:
        """The prompt of one or more choices, counted once. Raises ResourceExhaustedError when it has to wait."""
        self._quota.take_prompt(num_tokens)

    def start(self) -> None:
        """A request of the call has begun; it calls `end`."""
        assert self._num_unused > 0
        self._num_unused -= 1

    def end(self, num_output_tokens: int) -> None:
        """A request that has begun has ended."""
        self._quota.num_open -= 1
        self._quota.take_tokens(num_output_tokens)

    def close(self) -> None:
        """Gives back the places without a request: no more requests of the call begin."""
        self._quota.num_open -= self._num_unused
        self._num_unused = 0


def _adjust(bucket: TokenBucket | None, per_minute: int | None, now: float) -> TokenBucket | None:
    if per_minute is None:
        return None
    if bucket is None:
        return TokenBucket(per_minute, per_minute / 60, now)
    bucket.refill(now)
    bucket.resize(per_minute, per_minute / 60)
    return bucket


def _half(bucket: TokenBucket | None) -> int:
    return 0 if bucket is None else math.ceil(bucket.size / 2)


def _check(bucket: TokenBucket | None, count: int, now: float, what: str) -> None:
    if bucket is None:
        return
    bucket.refill(now)
    if wait_s := bucket.wait_s(count):
        left = f"this key has {math.floor(max(bucket.level, 0))} left of its {bucket.size} {what} per minute"
        message = f"{what}_per_minute: {left}, and {count} more are asked for"
        raise limit_reached(message, wait_s)
