"""What came of a run of hand-offs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.chaos.outcome import Outcome
from tests.chaos.ring import Ring, count_losses, scrape
from tests.chaos.tally import Tally, percentile

COUNTED = ("signalbox_scheduler_prefill_tokens_total", "signalbox_scheduler_prefix_cache_hit_tokens_total")


@dataclass(frozen=True)
class Counts:
    """What a ring has counted so far."""

    prompt_tokens: float
    """Computed, or found in the cache."""
    moved: float
    """Requests that went on elsewhere, as frontends saw it."""
    losses: Counter[str]
    handoffs: dict[str, float]
    """By how far they came, and failures by reason."""


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
    num_computed_again: int = 0
    """Prompt tokens, beyond what an undisturbed run computes or finds."""
    handoffs: dict[str, float] = field(default_factory=dict)

    def record(self) -> dict[str, object]:
        """For JSON."""
        return {
            "scenario": self.name,
            "streams": self.tally.num_streams,
            "lost": self.tally.verdicts_of("lost") + self.tally.verdicts_of("doubled"),
            "changed": self.tally.verdicts_of("changed"),
            "lost_attempts": dict(self.tally.losses),
            "moves_asked": self.num_asked,
            "moved": self.num_moved,
            "pause_p50_ms": round(1e3 * percentile(self.pauses, 50), 1),
            "pause_p99_ms": round(1e3 * percentile(self.pauses, 99), 1),
            "pause_max_ms": round(1e3 * max(self.pauses, default=0), 1),
            "prompt_tokens_computed_again": self.num_computed_again,
            "handoffs": self.handoffs,
            "refusals": dict(self.refusals),
            "details": self.tally.details[:10],
        }


async def count(ring: Ring) -> Counts:
    """As the processes of the ring that run tell it."""
    scheduler = await scrape(ring.metrics[ring.shape.schedulers[0]])
    prompt_tokens = sum(value for name, value in scheduler.items() if name.partition("{")[0] in COUNTED)
    handoffs = {name: value for name, value in scheduler.items() if "handoff" in name and "created" not in name}
    moved = 0.0
    for name in ring.shape.frontends:
        moved += (await scrape(ring.metrics[name])).get("signalbox_frontend_requests_moved_total", 0.0)
    return Counts(prompt_tokens, moved, await count_losses(ring), handoffs)


def by_lane(outcomes: list[Outcome]) -> list[Outcome]:
    """In the order of lanes."""
    return sorted(outcomes, key=lambda outcome: outcome.lane)
