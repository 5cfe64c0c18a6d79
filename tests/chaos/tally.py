"""What a fault did to the streams: counts of verdicts, and the longest pauses of those that it met."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.chaos.outcome import Outcome, Verdict
from tests.chaos.ring import FrontendDeath

BEFORE_S = 1.0
"""A pause that began so long before a fault was not its work."""

SLACK_S = 1.0
"""Between a death and what clients and we notice of it."""
WRONG = (Verdict.LOST, Verdict.DOUBLED, Verdict.CHANGED)


@dataclass(frozen=True)
class Window:
    """A fault and the time in which its consequences are looked for, in seconds of the monotonic clock."""

    start: float
    end: float


@dataclass
class Tally:
    """Of all repetitions of one fault on one ring."""

    name: str
    drafts: bool
    times: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    gaps: list[float] = field(default_factory=list)
    """Longest pause of each stream that a fault met, in seconds; slow readers are not among them."""
    longest: str = ""
    """Which stream paused for longest, and when."""
    waits: list[float] = field(default_factory=list)
    """From the first try to the first chunk, of each stream that was asked for in a window, in seconds."""
    losses: Counter[str] = field(default_factory=Counter)
    """Attempts that were lost and begun anew, by cause."""
    loads: list[float] = field(default_factory=list)
    """Processes of the machine that ran or wanted to, over the last minute, at the end of each repetition."""
    leftovers: int = 0
    """Requests that services still held some time after the last stream had ended."""
    details: list[str] = field(default_factory=list)
    """Of what is not right."""

    @property
    def is_right(self) -> bool:
        """Nothing was lost, doubled, changed or left behind."""
        return not self.leftovers and not any(
            self.verdicts[v] for v in (Verdict.LOST, Verdict.DOUBLED, Verdict.CHANGED)
        )

    @property
    def num_streams(self) -> int:
        """All but refusals, which were tried again."""
        return self.verdicts.total() - self.verdicts[Verdict.REFUSED]

    def take(
        self, outcomes: Iterable[Outcome], expected: Sequence[Outcome], deaths: Sequence[FrontendDeath]
    ) -> None:
        """Counts the streams."""
        for outcome in outcomes:
            verdict = outcome.judge(expected[outcome.lane])
            if verdict is Verdict.LOST and any(_was_met(outcome, death) for death in deaths):
                verdict = Verdict.EXCUSED
            self.verdicts[verdict] += 1
            if verdict in WRONG:
                what = outcome.error or outcome.difference(expected[outcome.lane])
                self.details.append(
                    f"{verdict.value}: lane {outcome.lane} ({outcome.ask.kind}) on {outcome.frontend}, "
                    f"{outcome.started:.2f} to {outcome.ended:.2f}: {what}"
                )

    def measure(self, outcomes: Iterable[Outcome], window: Window) -> None:
        """Looks for pauses in `window`."""
        self.times += 1
        for outcome in outcomes:
            if outcome.ask.is_slow or not outcome.times:
                continue
            if outcome.times[0] < window.start < outcome.times[-1]:
                gap, at = _longest_gap(outcome.times, window)
                if gap > max(self.gaps, default=0.0):
                    self.longest = (
                        f"lane {outcome.lane} ({outcome.ask.kind}) on {outcome.frontend} at {at:.2f}"
                    )
                self.gaps.append(gap)
            elif window.start <= outcome.asked <= window.end:
                self.waits.append(outcome.times[0] - outcome.asked)

    def record(self) -> dict[str, object]:
        """For JSON."""
        return {
            "fault": self.name,
            "drafts": self.drafts,
            "times": self.times,
            "streams": self.num_streams,
            **{verdict.value: self.verdicts[verdict] for verdict in Verdict if verdict is not Verdict.RIGHT},
            "gap_p50_s": round(percentile(self.gaps, 50), 3),
            "gap_p99_s": round(percentile(self.gaps, 99), 3),
            "gap_max_s": round(max(self.gaps, default=0.0), 3),
            "start_p50_s": round(percentile(self.waits, 50), 3),
            "start_p99_s": round(percentile(self.waits, 99), 3),
            "longest": self.longest,
            "num_gaps": len(self.gaps),
            "losses": dict(self.losses),
            "leftovers": self.leftovers,
            "load": round(percentile(self.loads, 50), 1),
        }


def _was_met(outcome: Outcome, death: FrontendDeath) -> bool:
    if death.name != outcome.frontend or not outcome.started - SLACK_S <= death.at <= outcome.ended + SLACK_S:
        return False
    return not death.was_planned or not outcome.flows


def _longest_gap(times: Sequence[float], window: Window) -> tuple[float, float]:
    """And when it began."""
    pairs = itertools.pairwise(times)
    gaps = [(b - a, a) for a, b in pairs if b > window.start and window.start - BEFORE_S < a < window.end]
    return max(gaps, default=(0.0, 0.0))


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank; 0 for no values."""
    if not values:
        return 0.0
    rank = max(0, min(len(values) - 1, round(percent / 100 * len(values) + 0.5) - 1))
    return sorted(values)[rank]


def render(tallies: Sequence[Tally]) -> str:
    """A table in markdown."""
    lines = [
        "| fault | drafts | times | streams | lost | doubled | changed | excused | refused |"
        " gap p50 / p99 / max, s | start p50 / p99, s | load |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for tally in tallies:
        counts = [tally.verdicts[verdict] for verdict in Verdict if verdict is not Verdict.RIGHT]
        lost, doubled, changed, refused, excused = counts
        gap = " / ".join(f"{percentile(tally.gaps, percent):.2f}" for percent in (50, 99, 100))
        start = f"{percentile(tally.waits, 50):.2f} / {percentile(tally.waits, 99):.2f}"
        cells = [tally.name, "on" if tally.drafts else "off", tally.times, tally.num_streams]
        cells += [lost, doubled, changed, excused, refused, gap, start, f"{percentile(tally.loads, 50):.1f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)
