"""Values that stand bare between tags: strings as they are, all others as JSON."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from frontend_svc.grammars.lark import ANYTHING, LINE, SPACE, Lark, Text, json_of, literal, never
from frontend_svc.grammars.schemas import Schema, Scope, choices_pattern, string_patterns

_READ_AS = {
    "null": "([nN][uU][lL][lL]|[nN][oO][nN][eE])",
    "boolean": rf"{SPACE}([tT][rR][uU][eE]|[fF][aA][lL][sS][eE]){SPACE}",
    "integer": rf"{SPACE}-?[0-9][0-9.eE+\-]*{SPACE}",
    "number": rf"{SPACE}-?[0-9][0-9.eE+\-]*{SPACE}",
    "object": rf"{SPACE}[\[{{]{ANYTHING}",
    "array": rf"{SPACE}[\[{{]{ANYTHING}",
}
"""Text that is read as no string, where the schema allows another type, too."""


@dataclass(frozen=True)
class Ending:
    """What ends a value."""

    tag: str
    follows: tuple[str, ...] = ()
    """What goes on behind it: a tag with none of these behind is quoted, and part of the value. Empty: the first one
    ends a value."""
    hidden: tuple[str, ...] = ()
    """Regular expressions for what ends a value, too, so that none has it."""
    breaks: bool = False
    """Values stand on lines of their own."""
    inner_token: str = ""
    """A token within the tag, where the vocabulary has it; empty: there is none."""


class TaggedValues:
    """Expressions for values, each with its end."""

    def __init__(self, lark: Lark, ending: Ending) -> None:
        self._lark, self._ending = lark, ending
        self._lead, self._tail = ending.tag, ""
        """The end of a value: text, and an expression behind it."""
        if lark.is_token(ending.tag):
            self._lead, self._tail = "", lark.token(ending.tag)
        elif ending.inner_token and lark.is_token(ending.inner_token):
            self._lead, _, behind = ending.tag.partition(ending.inner_token)
            self._tail = f"{lark.token(ending.inner_token)} {lark.join(behind)}"
        self._break = r"\n" if ending.breaks else ""
        self._hidden = list(ending.hidden) if self._lead and not self._tail else []
        """Regular expressions for what stands in no value."""
        if self._tail:
            self._hidden.append(literal(ending.inner_token if self._lead else ending.tag))

    def strings_and_others(
        self, schema: Any, scope: Scope
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The schema's alternatives: those that are strings, where it says no type too, and those that are not."""
        strings: list[dict[str, Any]] = []
        others: list[dict[str, Any]] = []
        for branch in scope.branches(schema):
            if "enum" in branch:
                texts = [choice for choice in branch["enum"] if isinstance(choice, str)]
                rest = [choice for choice in branch["enum"] if not isinstance(choice, str)]
                strings += [{"enum": texts}] if texts else []
                others += [{"enum": rest}] if rest else []
            else:
                (strings if branch.get("type", "string") == "string" else others).append(branch)
        return strings, others

    def of(self, schema: Any, scope: Scope) -> str:
        """A value by its schema. A string is none that would be read as something else."""
        strings, others = self.strings_and_others(schema, scope)
        if not strings:
            return self.json(schema, scope)
        read_as = {_READ_AS[kind] for branch in others for kind in _kinds(branch)}
        found = [self.string(branch, sorted(read_as)) for branch in strings]
        if others:
            found.append(self.json({"anyOf": others}, scope))
        return found[0] if len(found) == 1 else f"({' | '.join(found)})"

    def json(self, schema: Any, scope: Scope) -> str:
        """A value that is written as JSON."""
        line = [Text(LINE)] if self._ending.breaks else []
        end = self._lark.join(*line, self._lead) if self._lead or line else ""
        lead = self._lark.join(*line)
        return self._lark.rule(f"{lead} {json_of(scope.closed(schema))} {end} {self._tail}")

    def string(self, schema: Schema, without: Sequence[str] = ()) -> str:
        """A string as it is; `without` are regular expressions for what it is not."""
        if "enum" in schema:
            return self._bound([choices_pattern(schema["enum"])], without)
        patterns = string_patterns(schema)
        return self._bound(patterns, without) if patterns else self._free(without)

    def _bound(self, patterns: Sequence[str], without: Sequence[str]) -> str:
        lead = literal(self._lead)
        wanted = [f"/{self._break}({pattern}){self._break}{lead}/" for pattern in patterns]
        if without:
            wanted.append(f"~/{self._break}({'|'.join(without)}){self._break}{lead}/")
        body = " & ".join(wanted) + never(self._hidden)
        first = self._lark.lazy(body) if lead else self._lark.terminal(body)
        return self._lark.rule(f"{first} {self._tail}")

    def _free(self, without: Sequence[str]) -> str:
        lead, line = literal(self._lead), LINE if self._ending.breaks else ""
        make = self._lark.lazy if lead else self._lark.terminal
        other = f"/{ANYTHING}{lead}/{never(self._hidden)}"
        first = other + (f" & ~/{line}({'|'.join(without)}){line}{lead}/" if without else "")
        if self._lead and self._tail:  # the text alone ends nothing
            return self._lark.rule(f"{make(first)} {make(other)}* {self._tail}")
        begun, follows = f"{make(first)} {self._tail}", self._ending.follows
        if not follows or (not lead and not all(map(self._lark.is_token, follows))):
            return self._lark.rule(begun)
        # Where the end is a token, space alone may as well stand between tags.
        behind = f"~/{SPACE}(({'|'.join(map(literal, follows))}){ANYTHING}){'' if lead else '?'}/"
        return self._lark.rule(f"{begun} ({make(f'{other} & {behind}')} {self._tail})*")


def _kinds(branch: Schema) -> Collection[str]:
    if "type" in branch:
        return (branch["type"],)
    kinds = {
        bool: "boolean",
        int: "number",
        float: "number",
        type(None): "null",
        dict: "object",
        list: "array",
    }
    return {kinds[type(choice)] for choice in branch["enum"]}


def key_piece(declared: Collection[str]) -> Text:
    """A key that the schema does not name."""
    return Text(
        r"[A-Za-z_][A-Za-z0-9_.\-]{0,63}", f"({'|'.join(map(literal, declared))})" if declared else ""
    )
