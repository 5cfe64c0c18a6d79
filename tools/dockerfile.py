"""The Dockerfile's stages, as far as this project's own use of the format goes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PATH = Path(__file__).resolve().parent.parent / "Dockerfile"


@dataclass
class Stage:
    """A `FROM` and the instructions below it."""

    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        """What stands behind each instruction of that name."""
        return [rest for name, rest in self.instructions if name == word]


def read_instructions(text: str) -> Iterator[tuple[str, str]]:
    """(word, rest) of each instruction, continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


def read_stages() -> tuple[dict[str, str], dict[str, Stage]]:
    """The arguments ahead of all stages, and the stages by name."""
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    for word, rest in read_instructions(PATH.read_text()):
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages[name] = Stage(base)
        elif stages:
            list(stages.values())[-1].instructions.append((word, rest))
        else:
            name, _, value = rest.partition("=")
            arguments[name] = value
    return arguments, stages
