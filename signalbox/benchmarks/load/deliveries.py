"""How long a frontend takes to pass on what a worker's message brings, as a histogram at its /metrics tells."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from signalbox.benchmarks.load.metrics_page import read_page
from signalbox.benchmarks.load.summary import PERCENTILES, Figures
from signalbox.errors import InternalError
from signalbox.telemetry.attributes import METRIC_DELIVERY

_BUCKET = re.compile(rf'^{METRIC_DELIVERY}_bucket{{le="([^"]+)"}} (\S+)$', re.MULTILINE)


@dataclass(frozen=True)
class Deliveries:
    """Since the frontend started."""

    bounds_s: tuple[float, ...]
    """Upper bound of each bucket, ascending; the last one is infinite."""
    counts: tuple[float, ...]
    """Messages that took at most so long."""

    def since(self, earlier: Deliveries) -> Deliveries:
        """What came to it."""
        counts = (now - before for now, before in zip(self.counts, earlier.counts, strict=True))
        return Deliveries(self.bounds_s, tuple(counts))

    def percentile_s(self, number: float) -> float | None:
        """Interpolated inside its bucket; None when there are no messages, or when it lies above all finite bounds."""
        rank = self.counts[-1] * number / 100
        steps = zip(pairwise((0.0, *self.bounds_s[:-1])), pairwise((0.0, *self.counts[:-1])), strict=True)
        for (lower, upper), (below, count) in steps:
            if count >= rank and count > below:
                return lower + (upper - lower) * (rank - below) / (count - below)
        return None

    def figures(self) -> Figures:
        """The delays of deliveries, in milliseconds."""
        found = ((number, self.percentile_s(number)) for number in PERCENTILES)
        return {f"delivery_ms_p{n}": None if value is None else round(value * 1e3, 3) for n, value in found}


async def read_deliveries(address: str) -> Deliveries:
    """Asks the frontend at `host:port`, which is its HTTP address."""
    return parse_deliveries(await read_page(address))


def parse_deliveries(text: str) -> Deliveries:
    """Reads the text format of Prometheus. Raises InternalError when the histogram is missing."""
    buckets = [(float(bound), float(count)) for bound, count in _BUCKET.findall(text)]
    if not buckets:
        raise InternalError(f"the frontend's metrics lack {METRIC_DELIVERY}")
    bounds, counts = zip(*buckets, strict=True)
    return Deliveries(bounds, counts)
