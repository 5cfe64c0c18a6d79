"""What a stage is given: the order, its time, and where its lines go."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.gpu.order import Order

Values = dict[str, Any]


@dataclass
class Context:
    """One stage's view of the process that runs it."""

    order: Order
    write: Callable[[Values], None]
    """Takes a line: JSON values by name."""
    ends_at: float
    """time.monotonic() at which the stage's process is killed."""
    kept: Values
    """What stages of one process leave for each other, such as a loaded model."""
    failures: list[str] = field(default_factory=list)
    """Why the stage has failed, a sentence each; empty: it has not."""

    def line(self, kind: str, **values: Any) -> None:
        """Adds a line of a kind, of which the report makes a row of a table."""
        self.write({"kind": kind} | values)

    def fail(self, sentence: str) -> None:
        """The stage has failed, and goes on."""
        self.failures.append(sentence)

    @property
    def left_s(self) -> float:
        """Seconds until the process is killed."""
        return self.ends_at - time.monotonic()
