"""What all readers of one output share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frontend_svc.text.parsing.emitter import Emitter
from frontend_svc.text.parsing.tape import Tape

Tools = Mapping[str, Mapping[str, Any]]
"""JSON schemas of the arguments of the tools that may be called, by name."""


@dataclass(frozen=True)
class Context:
    """Where readers read from, where they tell what they read, and what can be called."""

    tools: Tools
    emit: Emitter = field(default_factory=Emitter)
    tape: Tape = field(default_factory=Tape)
