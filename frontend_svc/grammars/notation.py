"""Values that are written in a way of a language's own, nested ones too: Python's literals, Gemma's objects."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from frontend_svc.grammars.lark import Lark, literal
from frontend_svc.grammars.schemas import Schema, Scope, UnboundError, is_kind, object_members

_WORDS = {
    "array": {"type", "items", "minItems", "maxItems", "$defs", "definitions"},
    "boolean": {"type"},
    "null": {"type"},
}
OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST = r"\{", r"\}", r"\[", r"\]"
_NAME = "[A-Za-z_][A-Za-z0-9_]{0,63}"
"""A key that the schema does not name."""
_PLAIN_KEY = re.compile(r"[\w.$ /@-]+")
Key = Callable[[str], str]
_INFERRED = {"properties": "object", "additionalProperties": "object", "items": "array"}


@dataclass(frozen=True)
class Notation:
    """How values are written."""

    constants: Mapping[str, str]
    """Words of JSON, as they are written here."""
    string: Callable[[Lark, Schema], str]
    """The expression of a string by its schema."""
    text: Callable[[Lark, str], str]
    """The expression of one string."""
    key: Callable[[str], str]
    """A key that a regular expression describes, with what separates it from its value."""
    keyword: Callable[[str], str]
    """As `key`, of the arguments of a call."""
    comma: str = ", "
    sorts: bool = False
    """Keys may stand in the order of the alphabet, too."""


class Values:
    """Expressions of values in one notation."""

    def __init__(self, lark: Lark, notation: Notation, scope: Scope) -> None:
        self._lark, self._notation, self._scope = lark, notation, scope

    def of(self, schema: Any) -> str:
        """A value by its schema. Raises UnboundError."""
        if schema is True:
            schema = {}
        written = json.dumps(schema)
        scope = id(self._scope.root) if '"$ref"' in written else ""
        name, is_new = self._lark.recursive(f"{scope} {written}")
        if is_new:
            found = [self._of_branch(branch) for branch in self._scope.branches(schema)]
            self._lark.define(name, " | ".join(dict.fromkeys(found)))
        return name

    def arguments(self, properties: Mapping[str, Any], required: frozenset[str], others: Any) -> str:
        """The arguments of a call, without its brackets."""
        return self._members(properties, required, others, self._notation.keyword)

    def _members(self, properties: Mapping[str, Any], required: frozenset[str], others: Any, key: Key) -> str:
        if any(not _PLAIN_KEY.fullmatch(name) for name in properties):
            raise UnboundError("the name of an argument has characters that cannot be written")
        names = list(properties)
        orders = [names]
        if self._notation.sorts and sorted(names, key=str.lower) != names:
            orders.append(sorted(names, key=str.lower))
        found = [
            self._ordered({name: properties[name] for name in order}, required, others, key)
            for order in orders
        ]
        return found[0] if len(found) == 1 else self._lark.rule(" | ".join(found))

    def _ordered(self, properties: Mapping[str, Any], required: frozenset[str], others: Any, key: Key) -> str:
        """Members in this order, written from the last one on: what may stand first, and what behind another."""
        comma = self._regex(self._notation.comma)
        first = rest = ""
        if others is not None:
            known = "|".join(map(literal, properties))
            body = f"/{key(_NAME)}/" + (f" & ~/{key(f'({known})')}/" if known else "")
            other = f"{self._lark.terminal(body)} {self.of(others)}"
            first, rest = (
                self._lark.rule(f"({other} ({comma} {other})*)?"),
                self._lark.rule(f"({comma} {other})*"),
            )
        for name, schema in reversed(list(properties.items())):
            member = f"{self._regex(key(literal(name)))} {self.of(schema)}"
            with_it, behind = f"{member} {rest}", f"{comma} {member} {rest}"
            if name not in required:
                with_it = f"({with_it} | {first})" if first else f"({with_it})?"
                behind = f"({behind} | {rest})" if rest else f"({behind})?"
            first, rest = self._lark.rule(with_it), self._lark.rule(behind)
        return first

    def _regex(self, pattern: str) -> str:
        return self._lark.terminal(f"/{pattern}/")

    def _of_branch(self, branch: dict[str, Any]) -> str:
        if "enum" in branch:
            return f"({' | '.join(self._constant(choice) for choice in branch['enum'])})"
        kind = branch.get("type") or next((_INFERRED[word] for word in _INFERRED if word in branch), "")
        if not kind and branch:
            kind = "string" if set(branch) & {"pattern", "minLength", "maxLength", "format"} else ""
        if kind in _WORDS and (more := sorted(set(branch) - _WORDS[kind])):
            raise UnboundError(f"{', '.join(more)} of {kind}")
        match kind:
            case "string":
                return self._notation.string(self._lark, branch)
            case "integer" | "number":
                return f"%json {json.dumps(branch)}"
            case "boolean":
                return f"({self._constant(True)} | {self._constant(False)})"
            case "null":
                return self._constant(None)
            case "array":
                return self._array(branch)
            case "object":
                members = self._members(*object_members(branch, self._scope), self._notation.key)
                return f"{self._regex(OPEN_OBJECT)} {members} {self._regex(CLOSE_OBJECT)}"
        kinds = ("string", "number", "boolean", "null", "array", "object")
        return " | ".join(self.of({"type": each}) for each in kinds)

    def _array(self, schema: Schema) -> str:
        item, comma = self.of(schema.get("items", {})), self._regex(self._notation.comma)
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if most == 0:
            return self._regex(OPEN_LIST + CLOSE_LIST)
        more = (
            "*"
            if least < 2 and most is None
            else f"{{{max(0, least - 1)},{'' if most is None else most - 1}}}"
        )
        inner = f"{item} ({comma} {item}){more}"
        if not least:
            inner = f"({inner})?"
        return f"{self._regex(OPEN_LIST)} {inner} {self._regex(CLOSE_LIST)}"

    def _constant(self, value: Any) -> str:
        if isinstance(value, str):
            return self._notation.text(self._lark, value)
        if is_kind(value, "object") or is_kind(value, "array"):
            raise UnboundError("a choice is an object or an array")
        word = json.dumps(value)
        return self._regex(literal(self._notation.constants.get(word, word)))
