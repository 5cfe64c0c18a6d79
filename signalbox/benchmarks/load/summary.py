"""Figures of a run, from the records of its requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from signalbox.benchmarks.load.record import Record

Figures = dict[str, object]
"""One line of output: flat, so that a plot or a table picks columns by name. Units are in the names."""
PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Slo:
    """What a request has to keep to count as good; None: no matter."""

    ttft_ms: float | None = None
    """Time to first token."""
    itl_ms: float | None = None
    """99th percentile of the request's own inter-token latencies."""
    tpot_ms: float | None = None
    """Mean time per output token behind the first."""

    def is_met(self, record: Record) -> bool:
        """A failed request is never good."""
        if not record.succeeded:
            return False
        gap = percentile(sorted(record.gaps_s()), 99)
        measured = ((self.ttft_ms, record.ttft_s), (self.itl_ms, gap), (self.tpot_ms, record.tpot_s))
        return all(limit is None or value is None or value * 1e3 <= limit for limit, value in measured)

    def __str__(self) -> str:
        limits = (("ttft-ms", self.ttft_ms), ("itl-ms", self.itl_ms), ("tpot-ms", self.tpot_ms))
        return ",".join(f"{name}={value:g}" for name, value in limits if value is not None)


def summarize(records: Sequence[Record], window: tuple[float, float], slo: Slo | None = None) -> Figures:
    """Latencies are of all requests that ended well; rates count what came inside `window` (start, end)."""
    start, end = window
    good = [record for record in records if record.succeeded]
    ended = [record for record in good if record.ended_at <= end]
    figures: Figures = {
        "requests": len(records),
        "failed": len(records) - len(good),
        "errors": dict(Counter(record.error or "no_output" for record in records if not record.succeeded)),
        "duration_s": round(end - start, 3),
        "requests_s": _rate(len(ended), end - start),
        "output_tok_s": _rate(sum(tokens_between(record, start, end) for record in good), end - start),
        "prompt_tok_s": _rate(sum(r.num_prompt_tokens for r in good if r.arrivals[0] <= end), end - start),
    }
    figures |= percentiles_ms("ttft", [record.ttft_s for record in good])
    figures |= percentiles_ms("itl", [gap for record in good for gap in record.gaps_s()])
    figures |= percentiles_ms("tpot", [record.tpot_s for record in good if record.tpot_s is not None])
    figures |= percentiles_ms("e2e", [record.e2e_s for record in good])
    if slo is not None:
        kept = sum(map(slo.is_met, records))
        figures |= {
            "slo": str(slo),
            "goodput_requests_s": _rate(sum(map(slo.is_met, ended)), end - start),
            "slo_share": round(kept / len(records), 4) if records else None,
        }
    return figures


def tokens_between(record: Record, start: float, end: float) -> float:
    """Output tokens that came from `start` to `end`. When messages do not say how many tokens they carry, the server's
    count is spread evenly over them."""
    said = sum(record.counts)
    if not said:
        return 0.0
    pairs = zip(record.arrivals, record.counts, strict=True)
    inside = sum(count for at, count in pairs if start <= at <= end)
    return inside * record.num_output_tokens / said


def percentiles_ms(name: str, seconds: Sequence[float]) -> Figures:
    """`NAME_ms_p50` and so on; None without values."""
    ordered = sorted(seconds)
    found = ((number, percentile(ordered, number)) for number in PERCENTILES)
    return {f"{name}_ms_p{n}": None if value is None else round(value * 1e3, 3) for n, value in found}


def percentile(ordered: Sequence[float], number: float) -> float | None:
    """Interpolated between the two nearest of the ascending values; None when there are none."""
    if not ordered:
        return None
    place = (len(ordered) - 1) * number / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _rate(count: float, seconds: float) -> float | None:
    return round(count / seconds, 3) if seconds > 0 else None
