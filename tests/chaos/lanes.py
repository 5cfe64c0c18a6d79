"""Clients that ask again and again while faults come: each lane has one request, and one stream at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from tests.chaos.client import run_stream
from tests.chaos.kinds import Ask
from tests.chaos.outcome import Outcome
from tests.chaos.ring import Ring

TRY_AGAIN_S = 0.25
"""After a refusal that names no time."""
FLOW_TIMEOUT_S = 60.0
FLOWING = 0.9
"""Share of the lanes; there is always one that begins anew."""
MOST_WAIT_S = 2.0
"""After a refusal that names one."""


class Lanes:
    """All streams of a ring, those that ended and those that run."""

    def __init__(self, ring: Ring, asks: Sequence[Ask]) -> None:
        self.outcomes: list[Outcome] = []
        self._ring = ring
        self._asks = asks
        self._stopping = False
        self._running: dict[int, Outcome] = {}
        """The streams of now, by lane."""
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Starts one stream per lane."""
        self._tasks = [asyncio.create_task(self._keep_asking(lane)) for lane in range(len(self._asks))]

    async def once(self) -> list[Outcome]:
        """One stream per lane, all at once, and no more."""
        self._stopping = True
        self.start()
        await asyncio.gather(*self._tasks)
        return self.outcomes

    async def flow(self) -> None:
        """Returns when nearly all lanes have a stream with output, or have had time for one."""
        give_up = time.monotonic() + FLOW_TIMEOUT_S
        while time.monotonic() < give_up:
            if sum(outcome.flows for outcome in self._running.values()) >= FLOWING * len(self._asks):
                return
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """Returns when the streams that run have ended."""
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def _keep_asking(self, lane: int) -> None:
        turn = 0
        asked = time.monotonic()
        while True:
            frontends = self._ring.frontends
            frontend = frontends[(lane + turn) % len(frontends)]
            outcome = Outcome(self._asks[lane], lane, frontend.name, time.monotonic(), asked)
            self._running[lane] = outcome
            await run_stream(self._asks[lane], frontend, outcome)
            self.outcomes.append(outcome)
            turn += 1
            if outcome.was_refused:
                await asyncio.sleep(min(float(outcome.retry_after or TRY_AGAIN_S), MOST_WAIT_S))
            elif self._stopping:
                return
            else:
                asked = time.monotonic()
