"""Reads a call that is written as a JSON object with `name` and `arguments`, perhaps within one of `function`."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto

from frontend_svc.text.parsing.context import Context
from frontend_svc.text.parsing.json_reader import parse_json, read_string, read_value
from frontend_svc.text.parsing.pieces import END
from frontend_svc.text.parsing.tape import Reading

_ARGUMENTS = ("arguments", "parameters")
_FUNCTION = "function"
"""Stands around both, as OpenAI writes calls, or in place of the name."""
_OTHERS = ("type", "id", "index")


class Outcome(Enum):
    """What an object turned out to be."""

    CALL = auto()
    TEXT = auto()
    """No call of a tool that there is."""
    NOTHING = auto()
    """The output ended before it could be known."""


def read_call(context: Context, ends: Collection[str]) -> Reading[Outcome]:
    """Tells the call at the tape's place as it comes; nothing is told of what is none.

    `ends` are the tags that end it where its own brackets do not.
    """
    return (yield from _CallObject(context, ends).read())


class _CallObject:
    def __init__(self, context: Context, ends: Collection[str]) -> None:
        self._context, self._tape, self._ends = context, context.tape, ends
        self._name: str | None = None
        self._arguments: str | None = None
        """Arguments that stood in front of the name; None: there were none."""
        self._started = False
        self._depth = 0
        """Objects of `function` that are open."""

    def read(self) -> Reading[Outcome]:
        tape = self._tape
        item = yield from tape.behind_space()
        if item != "{":
            tape.back(item)
            return Outcome.NOTHING if item is END else Outcome.TEXT
        while True:
            item = yield from tape.behind_space()
            if item == "}":
                if not self._depth:
                    return self._finish()
                self._depth -= 1
                continue
            if item == ",":
                continue
            if item != '"':
                tape.back(item)
                return (yield from self._give_up())
            outcome = yield from self._read_member()
            if outcome is not None:
                return outcome

    def _read_member(self) -> Reading[Outcome | None]:
        """One key and its value; None: the object goes on."""
        tape = self._tape
        key = yield from read_string(tape)
        if key is None or (key not in ("name", _FUNCTION) and key not in _ARGUMENTS + _OTHERS):
            return (yield from self._give_up())
        item = yield from tape.behind_space()
        if item != ":":
            tape.back(item)
            return (yield from self._give_up())
        if key == _FUNCTION and (yield from self._enters()):
            return None
        if key in ("name", _FUNCTION) and self._name is None:
            return (yield from self._read_name())
        if key in _ARGUMENTS and not self._started:
            complete = yield from self._read_arguments()
        else:
            complete = yield from read_value(tape, self._ends, lambda text: None)
        return None if complete else (yield from self._give_up())

    def _enters(self) -> Reading[bool]:
        """Whether an object begins here; its members are read as if they stood in the outer one."""
        item = yield from self._tape.behind_space()
        if item != "{":
            self._tape.back(item)
            return False
        self._depth += 1
        return True

    def _read_name(self) -> Reading[Outcome | None]:
        item = yield from self._tape.behind_space()
        if item != '"':
            self._tape.back(item)
            return (yield from self._give_up())
        name = yield from read_string(self._tape)
        if name is None:
            return (yield from self._give_up())
        if name not in self._context.tools:
            return Outcome.TEXT
        self._name = name
        if self._arguments is not None:
            self._start()
            self._context.emit.arguments(self._arguments)
        return None

    def _read_arguments(self) -> Reading[bool]:
        tape, emit = self._tape, self._context.emit
        if self._name is None:
            held: list[str] = []
            complete = yield from read_value(tape, self._ends, held.append)
            self._arguments = _unwrap("".join(held)) if complete else None
            return complete
        self._start()
        first = yield from tape.behind_space()
        tape.back(first)
        if first in ("{", "["):
            return (yield from read_value(tape, self._ends, emit.arguments))
        written: list[str] = []
        complete = yield from read_value(tape, self._ends, written.append)
        emit.arguments(_unwrap("".join(written)))
        return complete

    def _start(self) -> None:
        assert self._name is not None
        if not self._started:
            self._started = True
            self._tape.recorded()
            self._context.emit.start(self._name)

    def _finish(self) -> Outcome:
        """The closing bracket has come."""
        if self._name is None:
            return Outcome.TEXT
        self._start()
        self._context.emit.end_call()
        return Outcome.CALL

    def _give_up(self) -> Reading[Outcome]:
        """It goes on as no object does. What is known of a call stands, with its arguments as they are."""
        if self._started:
            return Outcome.CALL
        item = yield from self._tape.next()
        self._tape.back(item)
        if self._name is None:
            return Outcome.NOTHING if item is END else Outcome.TEXT
        self._start()
        rest = yield from self._tape.until(self._ends)
        self._context.emit.arguments(rest.strip())
        if item is not END:
            self._context.emit.end_call()
        return Outcome.CALL


def _unwrap(written: str) -> str:
    """Arguments that are written as a string of JSON, or as null."""
    try:
        value = parse_json(written)
    except ValueError:
        return written
    if isinstance(value, str):
        return value
    return "{}" if value is None else written
