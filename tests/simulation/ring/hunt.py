"""Runs many seeds, and makes of one that fails the smallest that fails still, with a trace for people."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tests.simulation.ring.ring import Outcome, Ring
from tests.simulation.ring.setup import Plot

MOST_RUNS = 60
"""Of one shrinking."""


@dataclass
class Found:
    """A plot that fails, and why."""

    plot: Plot
    error: Exception

    def __str__(self) -> str:
        place = traceback.extract_tb(self.error.__traceback__)[-1]
        where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
        return f"{self.plot.seed}: {type(self.error).__name__} at {where}: {str(self.error)[:600]}"


def try_plot(plot: Plot) -> Outcome | Found:
    """Runs a plot."""
    try:
        return Ring(plot).run()
    except Exception as error:
        return Found(plot, error)


def shrink(found: Found) -> Found:
    """Takes away faults, then requests, one by one, as long as it fails in the same way."""
    runs = 0
    for name in ("faults", "requests"):
        number = 0
        while number < len(getattr(found.plot, name)) and runs < MOST_RUNS:
            items = getattr(found.plot, name)
            fewer = replace(found.plot, **{name: items[:number] + items[number + 1 :]})
            runs += 1
            outcome = try_plot(fewer)
            if isinstance(outcome, Found) and type(outcome.error) is type(found.error):
                found = outcome
            else:
                number += 1
    return found


def explain(found: Found) -> str:
    """The run once more, with its trace."""
    ring = Ring(found.plot, trace=True)
    try:
        ring.run()
    except Exception as error:
        last = f"{type(error).__name__}: {error}"
        tail = "".join(traceback.format_exception(error)[-4:])
    else:
        last, tail = "it passes when it is traced: it depends on something else than its seed", ""
    plot = found.plot
    lines = [
        f"setup {plot.setup}",
        *map(str, plot.requests),
        *map(str, plot.faults),
        str(ring.trace),
        last,
        tail,
    ]
    return "\n".join(lines)


def counts_of(plots: Iterable[Plot]) -> Counter[str]:
    """What became of hand-offs and pulls in these rings. AssertionError, with the shrunk trace, for the first that
    breaks a rule."""
    counts = Counter[str]()
    for plot in plots:
        outcome = try_plot(plot)
        if isinstance(outcome, Found):
            raise AssertionError(f"{outcome}\n{explain(shrink(outcome))}")
        counts.update(outcome.counts)
    return counts
