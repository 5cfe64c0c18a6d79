"""Grammars in the Lark of llguidance, built rule by rule."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from signalbox.grammar.form import GAP

ANYTHING = r"(.|\n)*"
"""A regular expression."""
SPACE = r"[ \t\r\n]*"
_NOT_PLAIN = re.compile(r'[^0-9A-Za-z_ <>=:,"]')
MAX_REMEMBERED_CHARS = 128
"""Characters of tags and names; what is longer is a client's, and would fill the memory."""
LINE = r"\n{0,2}"
"""What may stand between tags."""


@dataclass(frozen=True)
class Text:
    """A part of the output that a regular expression describes."""

    pattern: str
    without: str = ""
    """What the part is not; empty: it may be all that `pattern` has."""


@dataclass(frozen=True)
class Mark:
    """A tag: a token where the vocabulary has it, else its text."""

    text: str


Piece = Text | Mark


class Lark:
    """Rules and terminals of one grammar; equal ones are one."""

    def __init__(self, token_ids: Mapping[str, int]) -> None:
        """token_ids: added tokens of the vocabulary by their text."""
        self.token_ids = token_ids
        self._names: dict[str, str] = {}
        self._named: dict[str, str] = {}

    def lines(self) -> list[str]:
        """All rules."""
        return [f"{head}: {body}" for head, body in self._names.items()]

    def rule(self, body: str) -> str:
        """The name of a rule."""
        return self._name("r", body, "")

    def lazy(self, body: str) -> str:
        """The name of a rule that is one terminal, which ends as soon as it can."""
        return self._name("z", self.terminal(body), "[lazy]")

    def terminal(self, body: str) -> str:
        """The name of a terminal."""
        return self._name("T", body, "")

    def recursive(self, key: str) -> tuple[str, bool]:
        """The name of the rule for `key`, and whether this is the first time that it is asked for: then `define` has to
        follow."""
        known = self._named.get(key)
        if known is not None:
            return known, False
        self._named[key] = f"d{len(self._named)}"
        return self._named[key], True

    def define(self, name: str, body: str) -> None:
        """The body of a rule that was named before."""
        self._names[name] = body

    def _name(self, letter: str, body: str, attributes: str) -> str:
        key = letter + body
        if key not in self._named:
            self._named[key] = name = f"{letter}{len(self._named)}"
            self._names[name + attributes] = body
        return self._named[key]

    def is_token(self, mark: str) -> bool:
        """The vocabulary has the tag as one token."""
        return mark in self.token_ids

    def join(self, *pieces: Piece | str) -> str:
        """One piece behind the other, strings as they are written; neighbours that are text become one terminal, so
        that no other terminal can take a part of them."""
        found: list[str] = []
        run: list[Text] = []
        for piece in pieces:
            if isinstance(piece, str):
                run.append(Text(literal(piece)))
            elif isinstance(piece, Text):
                run.append(piece)
            elif not self.is_token(piece.text):
                run.append(Text(literal(piece.text)))
            else:
                found += [*self._merged(run), self.token(piece.text)]
                run = []
        return " ".join([*found, *self._merged(run)])

    def token(self, mark: str) -> str:
        """The token of a tag."""
        return f"<[{self.token_ids[mark]}]>"

    def _merged(self, run: Sequence[Text]) -> list[str]:
        pattern = "".join(part.pattern for part in run)
        if not pattern:
            return []
        body = f"/{pattern}/"
        if any(part.without for part in run):
            body += f" & ~/{''.join(part.without or part.pattern for part in run)}/"
        return [self.terminal(body)]


def literal(text: str) -> str:
    """A regular expression for a text."""
    return _short_literal(text) if len(text) <= MAX_REMEMBERED_CHARS else _literal(text)


@lru_cache(4096)
def _short_literal(text: str) -> str:
    return _literal(text)


def _literal(text: str) -> str:
    return _NOT_PLAIN.sub(lambda found: f"\\x{{{ord(found[0]):X}}}", text)


def containing(text: str, *, at_end: bool = False) -> str:
    """What contains `text`, or ends with it."""
    return f"/{ANYTHING}{literal(text)}/" if at_end else f"/{ANYTHING}{literal(text)}{ANYTHING}/"


def never(patterns: Sequence[str]) -> str:
    """A condition behind a terminal: it has nothing of these."""
    return f" & ~/{ANYTHING}({'|'.join(patterns)}){ANYTHING}/" if patterns else ""


def quoted(text: str) -> str:
    """A text as a string of Lark."""
    return json.dumps(text, ensure_ascii=False)


def json_of(schema: Any) -> str:
    """JSON by a schema. Gaps between its tokens are bounded, as in forms that stand alone."""
    bounded = {"x-guidance": {"whitespace_pattern": GAP}} | schema if isinstance(schema, dict) else schema
    return f"%json {json.dumps(bounded)}"
