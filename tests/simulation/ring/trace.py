"""What happened in a ring, for whoever has to understand a failure."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.ring.clock import ProcessLoop, World


@dataclass
class Trace:
    """Lines of time, node and event."""

    world: World
    is_on: bool = False
    lines: list[str] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)

    def note(self, who: str, what: str) -> None:
        """Something happened."""
        if self.is_on:
            for long, short in self._names.items():
                what = what.replace(long, short)
            self.lines.append(f"{self.world.now:9.4f} {who:<12} {what}")

    def name(self, long: str, short: str) -> None:
        """`long` is called `short` here."""
        if self.is_on:
            self._names[long] = short

    def __str__(self) -> str:
        return "\n".join(self.lines)


class TraceLog(logging.Handler):
    """Notes what the shells log."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        self._trace.note(_who(), f"{record.levelname.lower()}: {self.format(record)}")


def _who() -> str:
    try:
        loop: Any = asyncio.get_running_loop()
    except RuntimeError:
        return "-"
    return loop.process.name if isinstance(loop, ProcessLoop) else "-"
