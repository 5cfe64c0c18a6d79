"""Runs a parser over units in given pieces, and says what came of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frontend_svc.text.parsing.events import CallArguments, CallStart, Event, Reasoning, Text
from frontend_svc.text.parsing.language import Calls, Language, ParserPlan
from frontend_svc.text.parsing.pieces import Piece, Tag
from tests.parsing.writers import TOOLS, Family, Unit


@dataclass
class Found:
    """What a parser told of one output."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    @property
    def parsed(self) -> list[tuple[str, Any]]:
        """The calls with their arguments as values."""
        return [(name, json.loads(arguments)) for name, arguments in self.calls]


def plan_of(
    family: Family, tools: Mapping[str, Any] = TOOLS, *, within: bool = False, calls: Calls = Calls.AUTO
) -> ParserPlan:
    language = Language(family.reasoning, family.tools, family.vocabulary)
    plan = language.plan("", tools, calls=calls, reasons=within)
    assert plan is not None
    return plan


def read(
    plan: ParserPlan, units: Sequence[Unit], cuts: Sequence[int] | None = None, *, is_whole: bool = False
) -> Found:
    """Cuts are places between units; None: every unit comes alone. is_whole: the model has ended it itself."""
    parser = plan.make()
    events: list[Event] = []
    if cuts is None:
        for unit in units:
            events += parser.push((unit,))
    else:
        edges = [0, *sorted(min(c, len(units)) for c in cuts), len(units)]
        for start, end in itertools.pairwise(edges):
            events += parser.push(pieces_of(units[start:end]))
    events += parser.flush(is_whole=is_whole)
    found = collect(events)
    assert parser.num_calls == len(found.calls)
    return found


def pieces_of(units: Sequence[Unit]) -> list[Piece]:
    """Neighbouring characters as one text."""
    pieces: list[Piece] = []
    start = 0
    for place, unit in enumerate(units):
        if isinstance(unit, Tag):
            if place > start:
                pieces.append("".join(map(str, units[start:place])))
            pieces.append(unit)
            start = place + 1
    if start < len(units):
        pieces.append("".join(map(str, units[start:])))
    return pieces


def collect(events: Sequence[Event]) -> Found:
    found = Found()
    for event in events:
        match event:
            case Text(text):
                found.content += text
            case Reasoning(text):
                found.reasoning += text
            case CallStart(index, name, call_id):
                assert index == len(found.calls), "calls are counted"
                found.calls.append((name, ""))
                found.ids.append(call_id)
            case CallArguments(index, text):
                assert index == len(found.calls) - 1, "arguments belong to the newest call"
                found.calls[-1] = (found.calls[-1][0], found.calls[-1][1] + text)
    return found
