"""What came of a run so far: lines and ends of stages, and the two files that hold them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Values = dict[str, Any]


@dataclass
class Outcome:
    """How one stage ended."""

    failures: list[str]
    """Sentences; empty: it succeeded."""
    seconds: float


@dataclass
class Results:
    """All lines and outcomes by stage."""

    raw: Path
    """Takes each line and outcome as a JSON line, as soon as it is there."""
    lines: dict[str, list[Values]] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def begin(self) -> None:
        """Makes the file anew."""
        self.raw.write_text("")

    def add(self, stage: str, values: Values) -> None:
        """One more line of a stage."""
        self.lines.setdefault(stage, []).append(values)
        self._keep({"stage": stage} | values)

    def end(self, stage: str, failures: list[str], seconds: float) -> None:
        """The stage has ended."""
        self.outcomes[stage] = Outcome(failures, seconds)
        self._keep({"stage": stage, "kind": "end", "failures": failures, "seconds": seconds})

    def of_kind(self, stage: str, kind: str) -> list[Values]:
        """Lines of a stage, in order."""
        return [values for values in self.lines.get(stage, []) if values["kind"] == kind]

    @property
    def failed(self) -> list[str]:
        """Names of the stages that have failed."""
        return [name for name, outcome in self.outcomes.items() if outcome.failures]

    def _keep(self, values: Values) -> None:
        with self.raw.open("a") as file:
            file.write(json.dumps(values) + "\n")
