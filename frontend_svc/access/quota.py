"""What a key has taken of its limits: lent by the scheduler, where one lends, or counted by this process alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from frontend_svc.access.keys import Key
from frontend_svc.access.lender import Lender
from frontend_svc.access.lent_limit import LentLimit, Refusal
from signalbox.errors import PermissionDeniedError, ResourceExhaustedError, limit_reached
from signalbox.protocol.enums import BudgetKind
from signalbox.runtime.token_bucket import TokenBucket

AT_ONCE_RETRY_S = 1.0
"""What a client is told to wait, in seconds: nobody knows when a request ends."""


class KeyQuota:
    """What one key may still take, over all changes of its entry. A bucket holds a minute's worth."""

    def __init__(
        self,
        key: Key,
        clock: Callable[[], float] = time.monotonic,
        *,
        key_id: str = "",
        lender: Lender | None = None,
    ) -> None:
        """lender: None: this process counts alone."""
        self.num_open = 0
        """Requests let in that have not ended."""
        self._clock = clock
        self._key_id, self._lender = key_id, lender
        self._at_once: int | None = None
        self._requests: TokenBucket | None = None
        self._tokens: TokenBucket | None = None
        """What is left by what is known here: never less than there is, but for what others return."""
        self._lent: dict[BudgetKind, LentLimit] = {}
        """The limits that the key has, as far as they are lent."""
        self.follow(key)

    def follow(self, key: Key) -> None:
        """Takes over the limits of `key`."""
        now = self._clock()
        self._at_once = key.requests_at_once
        self._requests = _adjust(self._requests, key.requests_per_minute, now)
        self._tokens = _adjust(self._tokens, key.tokens_per_minute, now)
        self._follow_lent(BudgetKind.REQUESTS_AT_ONCE, self._at_once, None)
        self._follow_lent(BudgetKind.REQUESTS_PER_MINUTE, key.requests_per_minute, self._requests)
        self._follow_lent(BudgetKind.TOKENS_PER_MINUTE, key.tokens_per_minute, self._tokens)

    def _follow_lent(self, kind: BudgetKind, limit: int | None, bucket: TokenBucket | None) -> None:
        if self._lender is None:
            return
        if limit is None:
            if self._lent.pop(kind, None) is not None:
                self._lender.drop(self._key_id, kind)
        elif kind in self._lent:
            self._lent[kind].limit = limit
        else:
            lent = self._lent[kind] = self._lender.add(self._key_id, kind, limit, bucket)
            if kind is BudgetKind.REQUESTS_AT_ONCE:
                lent.occupy(self.num_open)

    async def admit(self, count: int) -> QuotaLease:
        """Takes the places of `count` requests, all or none, before anything is known of them.

        Raises ResourceExhaustedError with the time to wait, PermissionDeniedError for more than can ever run at once,
        UnavailableError where nobody can lend what is needed.
        """
        if not self._is_lent:
            return self.take(count)
        self.require(count)
        places = await self._reserve(BudgetKind.REQUESTS_AT_ONCE, count)
        try:
            requests = await self._reserve(BudgetKind.REQUESTS_PER_MINUTE, count)
        except BaseException:
            if places is not None:
                self._give_up(places, count)
            raise
        if requests is not None:
            requests.use(count)
        return self._open(count)

    def take(self, count: int) -> QuotaLease:
        """`admit` of a process that counts alone."""
        self.require(count)
        if self._lent_places is not None:
            self._lent_places.occupy(count)
        return self._open(count)

    def _open(self, count: int) -> QuotaLease:
        if self._requests is not None:
            self._requests.take(count)
        self.num_open += count
        return QuotaLease(self, count)

    def leave(self, count: int) -> None:
        """So many requests that were let in are open no more."""
        self.num_open -= count
        if self._lent_places is not None:
            self._give_up(self._lent_places, count)

    @property
    def _is_lent(self) -> bool:
        return self._lender is not None and self._lender.is_lent

    @property
    def _lent_places(self) -> LentLimit | None:
        return self._lent.get(BudgetKind.REQUESTS_AT_ONCE)

    async def _reserve(self, kind: BudgetKind, count: int) -> LentLimit | None:
        """What has lent `count`; None: the key has no such limit. Raises ResourceExhaustedError, UnavailableError."""
        lent = self._lent.get(kind)
        if lent is None:
            return None
        assert self._lender is not None
        refusal = await self._lender.reserve(lent, count)
        if refusal is not None:
            raise _refused(kind, lent.limit, count, refusal)
        return lent if self._lent.get(kind) is lent else None

    def _give_up(self, lent: LentLimit, count: int) -> None:
        assert self._lender is not None
        self._lender.release(lent, count)

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

    async def take_prompt(self, num_tokens: int) -> None:
        """Raises ResourceExhaustedError when the prompt has to wait, UnavailableError where nobody can lend it."""
        _check(self._tokens, num_tokens, self._clock(), "tokens")
        lent = await self._reserve(BudgetKind.TOKENS_PER_MINUTE, num_tokens) if self._is_lent else None
        if lent is not None:
            lent.use(num_tokens)
        self._spend(num_tokens)

    def take_tokens(self, num_tokens: int) -> None:
        """Takes the tokens of an output, which were not known before; it may go below zero."""
        lent = self._lent.get(BudgetKind.TOKENS_PER_MINUTE)
        if lent is not None and self._is_lent:
            lent.charge(num_tokens)
        self._spend(num_tokens)

    def _spend(self, num_tokens: int) -> None:
        if self._tokens is not None:
            self._tokens.refill(self._clock())
            self._tokens.take(num_tokens)


class QuotaLease:
    """Places of one call among the open requests of its key: each is given back when its request ends, those without a
    request when the call is open."""

    def __init__(self, quota: KeyQuota, count: int) -> None:
        self._quota = quota
        self._num_unused = count

    async def take_prompt(self, num_tokens: int) -> None:
        """The prompt of one or more choices, counted once. Raises ResourceExhaustedError when it has to wait,
        UnavailableError where nobody can lend it."""
        await self._quota.take_prompt(num_tokens)

    def start(self) -> None:
        """A request of the call has begun; it calls `end`."""
        assert self._num_unused > 0
        self._num_unused -= 1

    def end(self, num_output_tokens: int) -> None:
        """A request that has begun has ended."""
        self._quota.leave(1)
        self._quota.take_tokens(num_output_tokens)

    def close(self) -> None:
        """Gives back the places without a request: no more requests of the call begin."""
        count, self._num_unused = self._num_unused, 0
        if count:
            self._quota.leave(count)


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
        raise _limit_per_minute(what, bucket.size, math.floor(max(bucket.level, 0)), count, wait_s)


def _limit_per_minute(
    what: str, limit: float, left: int, count: int, wait_s: float
) -> ResourceExhaustedError:
    told = f"this key has {left} left of its {limit} {what} per minute"
    return limit_reached(f"{what}_per_minute: {told}, and {count} more are asked for", wait_s)


def _refused(kind: BudgetKind, limit: int, count: int, refusal: Refusal) -> ResourceExhaustedError:
    """The scheduler lends nothing."""
    left = max(refusal.left, 0)
    if kind is BudgetKind.REQUESTS_AT_ONCE:
        message = f"requests_at_once: this key has {left} of {limit} left, and {count} more are asked for"
        return limit_reached(message, AT_ONCE_RETRY_S)
    what = "requests" if kind is BudgetKind.REQUESTS_PER_MINUTE else "tokens"
    return _limit_per_minute(what, limit, left, count, refusal.wait_s or AT_ONCE_RETRY_S)
