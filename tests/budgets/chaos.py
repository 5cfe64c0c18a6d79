"""Random calls of a key at all frontends of a ring, breaks, ends and takeovers, and a judge who counts what is let
in as one process would that counted alone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from frontend_svc.access.lender import Lender
from frontend_svc.access.quota import QuotaLease
from scheduler_svc.core.budgets.pool import SPARE_PART
from signalbox.runtime.token_bucket import TokenBucket
from tests.budgets.lent_ring import HOLD_S, LONGEST_WAY_S, TICK_S, LentFrontend, LentRing, settle

NUM_FRONTENDS = 3
EPSILON = 1e-3
TOLD_S = TICK_S + 2 * LONGEST_WAY_S
"""How long it takes at most until an output is charged and no loan is on its way that does not know it (KB3)."""


class Limits(NamedTuple):
    """Of the key of one run."""

    at_once: int
    requests: int
    tokens: int


class Judge:
    """What one process that counted alone would have left. More than that is a breach, but for what KB6 allows."""

    def __init__(self, ring: LentRing, limits: Limits) -> None:
        self.ring = ring
        self.requests = TokenBucket(limits.requests, limits.requests / 60, ring.now)
        self.tokens = TokenBucket(limits.tokens, limits.tokens / 60, ring.now)
        self.limits = limits
        self.num_open = 0
        self.num_calls = self.num_charged = 0
        self._charges: deque[tuple[float, int, LentFrontend]] = deque()
        """Outputs of the last moment: when, how many tokens, where."""
        self._above = {self.requests: 0.0, self.tokens: 0.0}
        """Let in above the limit because schedulers took over."""
        self._on_top = 0.0
        """Tokens let in since outputs went above the limit: of what was lent ahead of that."""

    def took(self, count: int, prompt: int) -> None:
        """A call was let in."""
        self.num_calls += 1
        self.num_open += count
        assert self.num_open <= self.limits.at_once * (1 + self.ring.num_takeovers), "requests at once"
        self._take(self.requests, count, "requests", 0)
        if self.tokens.level > 0:
            self._on_top = 0.0
        untold = self._num_untold()
        on_top = max(0.0, NUM_FRONTENDS * (self.limits.tokens // SPARE_PART) - self._on_top)
        self._on_top += max(0.0, self._take(self.tokens, prompt, "tokens", untold + on_top) - untold)

    def _take(self, bucket: TokenBucket, number: int, what: str, allowed: float) -> float:
        """How much of `number` is more than one process would let in, and is allowed."""
        bucket.refill(self.ring.now)
        lacking = number - max(0.0, bucket.level)
        bucket.take(number)
        if lacking > allowed + EPSILON:
            # It is not known to the scheduler that leads now: it takes it for free.
            self._above[bucket] += lacking - allowed
            bucket.level += lacking - allowed
            assert self._above[bucket] <= self.ring.num_takeovers * bucket.size + EPSILON, (
                what,
                lacking,
                allowed,
            )
        return max(0.0, min(lacking, allowed))

    def charged(self, num_tokens: int, frontend: LentFrontend) -> None:
        """An output ended at a frontend with a link."""
        self.num_charged += num_tokens
        self.tokens.refill(self.ring.now)
        self.tokens.take(num_tokens)
        self._charges.append((self.ring.now, num_tokens, frontend))

    def link_ended(self, frontend: LentFrontend) -> None:
        """What the frontend said in the last moment may be charged to nobody."""
        self._num_untold()
        self.tokens.level += sum(number for _, number, where in self._charges if where is frontend)
        self._charges = deque(entry for entry in self._charges if entry[2] is not frontend)

    def ended(self, count: int) -> None:
        """Requests run no more."""
        self.num_open -= count

    def wait_s(self) -> float:
        """Seconds until outputs are paid for, and the whole limit is there."""
        self.tokens.refill(self.ring.now)
        return self.tokens.wait_s(self.tokens.size)

    def _num_untold(self) -> int:
        while self._charges and self._charges[0][0] < self.ring.now - TOLD_S:
            self._charges.popleft()
        return sum(number for _, number, _ in self._charges)


class Chaos:
    """What happens to a ring."""

    def __init__(self, ring: LentRing, judge: Judge, *, with_takeovers: bool) -> None:
        self.ring, self.judge, self.random = ring, judge, ring.random
        self.with_takeovers = with_takeovers
        self.is_on = True
        self.error: BaseException | None = None
        self._unlinked_charges: dict[LentFrontend, int] = dict.fromkeys(ring.frontends, 0)

    def start(self) -> None:
        """Begins."""
        for frontend in self.ring.frontends:
            frontend.on_linked = lambda frontend=frontend: self._linked(frontend)
            frontend.attach()
            self._again(0.08, lambda frontend=frontend: self._call(frontend))
        self._again(4.0, self._trouble)

    def _again(self, mean_s: float, action: Callable[[], None]) -> None:
        def act() -> None:
            if self.is_on:
                action()
                self._again(mean_s, action)

        self.ring.after(self.random.expovariate(1 / mean_s), act)

    def _call(self, frontend: LentFrontend) -> None:
        limits = self.judge.limits
        count = self.random.randint(1, min(2, limits.at_once))
        prompt = self.random.choice((0, self.random.randint(1, max(1, limits.tokens // 5))))
        output = self.random.choice((0, 0, self.random.randint(1, max(1, limits.tokens // 9))))

        async def call() -> None:
            lender = frontend.lender
            lease = await frontend.call(count, prompt)
            if lease is None:
                return
            self.judge.took(count, prompt)
            frontend.num_open += count
            for _ in range(count):
                lease.start()
            lease.close()
            self.ring.after(self.random.expovariate(1.0), lambda: end(lease, lender))

        def end(lease: QuotaLease, lender: Lender) -> None:
            if frontend.lender is lender:  # the process still lives
                self._charge(frontend, count * output)
                for _ in range(count):
                    lease.end(output)
                frontend.num_open -= count
                self.judge.ended(count)

        task = asyncio.get_running_loop().create_task(call())
        frontend.tasks.add(task)
        task.add_done_callback(frontend.tasks.discard)
        task.add_done_callback(self._look)

    def _charge(self, frontend: LentFrontend, num_tokens: int) -> None:
        if frontend.is_linked:
            self.judge.charged(num_tokens, frontend)
        else:
            self._unlinked_charges[frontend] += num_tokens

    def _look(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.error = self.error or error

    def _trouble(self) -> None:
        frontend = self.random.choice(self.ring.frontends)
        kind = self.random.choice(("cut", "restart", "takeover" if self.with_takeovers else "cut"))
        for each in self.ring.frontends if kind == "takeover" else [frontend]:
            self.judge.link_ended(each)
        if kind == "cut":
            frontend.cut()
        elif kind == "restart":
            num_left = frontend.restart()
            self._unlinked_charges[frontend] = 0
            passed_s = self.ring.now - frontend.cut_at
            self.ring.after(HOLD_S - passed_s - EPSILON, lambda: self.judge.ended(num_left))
        else:
            self.ring.take_over()
        for each in self.ring.frontends:
            self.ring.after(self.random.uniform(0, HOLD_S / 2), each.attach)

    def _linked(self, frontend: LentFrontend) -> None:
        """What ended there without a link is charged when it has one."""
        num_tokens, self._unlinked_charges[frontend] = self._unlinked_charges[frontend], 0
        self.judge.charged(num_tokens, frontend)


async def judge_chaos(seed: int, limits: Limits, *, with_takeovers: bool) -> Judge:
    """100 s of chaos, and quiet until all is whole. Raises AssertionError when frontends together took too much, or
    when not all of the limit is there for one of them afterwards."""
    ring = LentRing(
        seed,
        NUM_FRONTENDS,
        requests_at_once=limits.at_once,
        requests_per_minute=limits.requests,
        tokens_per_minute=limits.tokens,
    )
    judge = Judge(ring, limits)
    chaos = Chaos(ring, judge, with_takeovers=with_takeovers)
    chaos.start()
    await ring.run(100)
    chaos.is_on = False
    if chaos.error is not None:
        raise chaos.error
    await ring.run(2 * HOLD_S)
    await ring.run(judge.wait_s() + 125)
    frontend = ring.random.choice(ring.frontends)
    call = asyncio.create_task(frontend.call(limits.at_once, limits.tokens))
    await ring.run(1)
    await settle()
    assert call.done(), "nobody answers"
    assert call.result() is not None, "not all of the limit is there, and nobody uses it"
    return judge
