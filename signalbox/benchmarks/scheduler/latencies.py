"""Figures of the streams of a plan: first tokens, inter-token latencies, goodput."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np

from scheduler_svc.core.parts.handoff.counts import HandoffCounts
from signalbox.benchmarks.scheduler.turn import Turn


@dataclass
class StreamLatencies:
    """Times of the requests of one stream that have ended."""

    waits: array[float] = field(default_factory=lambda: array("f"))
    gaps: array[float] = field(default_factory=lambda: array("f"))
    tails: array[float] = field(default_factory=lambda: array("f"))
    """99th percentile of each request's own inter-token latencies, in seconds; 0: it has none."""

    def take(self, turn: Turn) -> None:
        """A request has ended."""
        self.waits.append(turn.first_token - turn.arrived)
        self.gaps.extend(turn.gaps)
        self.tails.append(float(np.percentile(turn.gaps, 99)) if len(turn.gaps) else 0.0)


@dataclass
class Latencies:
    """Times of all streams."""

    slo_ms: tuple[float, float] | None
    """What a good request keeps, in milliseconds: time to first token, and p99 of its own inter-token latencies."""
    by_stream: dict[str, StreamLatencies] = field(default_factory=dict)

    def take(self, turn: Turn) -> None:
        """A request has ended."""
        self.by_stream.setdefault(turn.stream, StreamLatencies()).take(turn)

    def summarize(self) -> dict[str, float]:
        """Names with the stream's ahead, where it has one."""
        figures, num_good, num_all = dict[str, float](), 0, 0
        gaps = [np.asarray(stream.gaps) for stream in self.by_stream.values()]
        if sum(map(len, gaps)):
            figures["itl_ms_p99"] = round(float(np.percentile(np.concatenate(gaps), 99)) * 1e3, 2)
        for name, stream in sorted(self.by_stream.items()):
            prefix = f"{name}_" if name else ""
            for what, seconds in (("ttft", stream.waits), ("itl", stream.gaps)):
                for number in (50, 99) if len(seconds) else ():
                    value = float(np.percentile(seconds, number)) * 1e3
                    figures[f"{prefix}{what}_ms_p{number}"] = round(value, 2)
            if self.slo_ms is not None:
                ttft_s, itl_s = (limit / 1e3 for limit in self.slo_ms)
                good = (np.array(stream.waits) <= ttft_s) & (np.array(stream.tails) <= itl_s)
                figures[f"{prefix}slo_share"] = round(float(good.mean()), 4)
                num_good, num_all = num_good + int(good.sum()), num_all + len(good)
        if self.slo_ms is not None and num_all:
            figures["slo_share"] = round(num_good / num_all, 4)
        return figures


def summarize_handoffs(counts: HandoffCounts) -> dict[str, float]:
    """What became of hand-offs."""
    return {
        "handoffs_begun": counts.num_begun,
        "handoffs_committed": counts.num_committed,
        "handoffs_failed": sum(counts.failed.values()),
        "handoff_blocks": counts.num_blocks,
        "frozen_ms_mean": round(counts.frozen_s / max(counts.num_committed, 1) * 1e3, 2),
        "frozen_s": round(counts.frozen_s, 3),
    }
