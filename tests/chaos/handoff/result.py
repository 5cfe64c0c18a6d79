"""What came of a run of hand-offs."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.chaos.outcome import Outcome, Verdict
from tests.chaos.ring import Ring, count_losses, scrape
from tests.chaos.tally import Tally, percentile

PROMPTS = ("signalbox_scheduler_prefill_tokens_total", "signalbox_scheduler_prefix_cache_hit_tokens_total")
"""A prompt token is computed or found: the sum says how often it was needed."""
COMMITTED = 'signalbox_scheduler_handoffs_total{event="committed"}'
LOOK_EVERY_S = 0.2


class Prompts:
    """Prompt tokens that a ring computes or finds, over the ends of workers, whose counters end with them."""

    def __init__(self, ring: Ring) -> None:
        self.num_tokens = 0
        self._ring = ring
        self._last: dict[str, float] = {}

    async def look(self, *, is_first: bool = False) -> None:
        """Adds what was counted since the last look."""
        scraped = await scrape(self._ring.metrics[self._ring.shape.schedulers[0]])
        for name, value in scraped.items():
            if name.partition("{")[0] in PROMPTS:
                last = self._last.get(name, 0.0)
                self.num_tokens += 0 if is_first else int(value - last if value >= last else value)
                self._last[name] = value

    async def keep_looking(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look()


@contextlib.asynccontextmanager
async def counting_prompts(ring: Ring) -> AsyncIterator[Prompts]:
    """Counts within the block; read the sum behind it."""
    prompts = Prompts(ring)
    await prompts.look(is_first=True)
    looking = asyncio.create_task(prompts.keep_looking())
    try:
        yield prompts
    finally:
        looking.cancel()
        await prompts.look()


@dataclass(frozen=True)
class Counts:
    """What a ring has counted so far."""

    moved: float
    """Requests that went on elsewhere, as frontends saw it."""
    losses: Counter[str]
    handoffs: dict[str, float]
    """By how far they came, and failures by reason."""


async def count(ring: Ring) -> Counts:
    """As the scheduler and the frontends tell it."""
    scheduler = await scrape(ring.metrics[ring.shape.schedulers[0]])
    handoffs = {name: value for name, value in scheduler.items() if "handoff" in name}
    moved = 0.0
    for name in ring.shape.frontends:
        moved += (await scrape(ring.metrics[name])).get("signalbox_frontend_requests_moved_total", 0.0)
    return Counts(moved, await count_losses(ring), handoffs)


@dataclass
class Result:
    """Of one scenario."""

    name: str
    tally: Tally
    num_asked: int = 0
    """Moves that were asked for by hand."""
    refusals: Counter[str] = field(default_factory=Counter)
    num_moved: int = 0
    pauses: list[float] = field(default_factory=list)
    """Of streams around moves, in seconds."""
    gaps: list[float] = field(default_factory=list)
    """Between any two pieces of a stream, of all whose reader is not slow, in seconds."""
    gap_s: float = 0.0
    """Median between two pieces of a stream that nothing is done to."""
    num_computed_again: int = 0
    """Prompt tokens that an undisturbed run does not compute or find. The one token without KV, with which a target
    begins, counts as a prompt's there, and is none of these."""
    handoffs: dict[str, float] = field(default_factory=dict)

    def record(self) -> dict[str, object]:
        """For JSON."""
        verdicts = self.tally.verdicts
        return {
            "scenario": self.name,
            "streams": self.tally.num_streams,
            "lost": verdicts[Verdict.LOST] + verdicts[Verdict.DOUBLED],
            "changed": verdicts[Verdict.CHANGED],
            "left_over": self.tally.leftovers,
            "lost_attempts": dict(self.tally.losses),
            "moves_asked": self.num_asked,
            "moved": self.num_moved,
            "gap_p50_ms": round(1e3 * self.gap_s, 1),
            "gap_p99_ms": round(1e3 * percentile(self.gaps, 99), 1),
            "gap_max_ms": round(1e3 * max(self.gaps, default=0), 1),
            "pause_p50_ms": round(1e3 * percentile(self.pauses, 50), 1),
            "pause_p99_ms": round(1e3 * percentile(self.pauses, 99), 1),
            "pause_max_ms": round(1e3 * max(self.pauses, default=0), 1),
            "prompt_tokens_computed_again": self.num_computed_again,
            "handoffs": self.handoffs,
            "refusals": dict(self.refusals),
            "details": self.tally.details[:10],
        }


def by_lane(outcomes: list[Outcome]) -> list[Outcome]:
    """In the order of lanes."""
    return sorted(outcomes, key=lambda outcome: outcome.lane)
