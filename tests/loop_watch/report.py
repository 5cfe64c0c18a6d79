"""What watched services have reported, as the test sees it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from tests.loop_watch.watch import FILE, LIMIT, LIMIT_S


@dataclass(frozen=True)
class LongCallback:
    """A callback that has held its loop."""

    service: str
    """The module that its process runs."""
    name: str
    place: str
    """file:line of its function or coroutine."""
    cpu_s: float
    """Processor time of the loop's thread."""
    wall_s: float
    at: float
    """When it ended, in Unix time."""
    stacks: tuple[tuple[str, ...], ...] = field(compare=False)
    """Where it was seen most often, the innermost frame first."""

    def __str__(self) -> str:
        spent = f"{self.service}: {self.cpu_s * 1e3:.0f} ms of CPU ({self.wall_s * 1e3:.0f} ms of wall time)"
        where = "".join(f"\n    {' < '.join(stack)}" for stack in self.stacks)
        return f"{spent} in {self.name} ({self.place}){where}"


@dataclass(frozen=True)
class Report:
    """Of all services that were started while it was open."""

    path: Path

    @property
    def services(self) -> set[str]:
        """Those whose loops are watched: one that has written nothing is not known to be quick."""
        return {line["service"] for line in self._lines() if "began" in line}

    def long(self, limit_s: float = LIMIT_S, since: float = 0.0) -> list[LongCallback]:
        """Callbacks above `limit_s` of processor time that ended after `since`, the longest first."""
        found = [
            LongCallback(
                line["service"],
                line["callback"],
                line["place"],
                line["cpu_s"],
                line["wall_s"],
                line["at"],
                tuple(map(tuple, line["stacks"])),
            )
            for line in self._lines()
            if "callback" in line and line["cpu_s"] > limit_s and line["at"] >= since
        ]
        return sorted(found, key=lambda each: -each.cpu_s)

    def check(self, *services: str, since: float = 0.0) -> None:
        """Asserts that these were watched, and that no callback of any was long that ended after `since`: before it is
        ready, nobody waits for a service."""
        assert set(services) <= self.services, f"not watched: {set(services) - self.services}"
        long = self.long(since=since)
        assert not long, "\n".join(map(str, long))

    def _lines(self) -> Iterator[dict[str, object]]:
        if self.path.exists():
            yield from map(json.loads, self.path.read_text().splitlines())


@contextmanager
def watching(folder: Path, limit_s: float = LIMIT_S) -> Iterator[Report]:
    """Services that are started as forks in the block are watched, until they end. `limit_s`: what is reported."""
    path = folder / "loop_watch.jsonl"
    with mock.patch.dict(os.environ, {FILE: str(path), LIMIT: str(limit_s)}):
        yield Report(path)
