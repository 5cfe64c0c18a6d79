"""Writes the arguments of a call as a JSON object, from languages that are no JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from frontend_svc.text.parsing.emitter import Emitter
from frontend_svc.text.parsing.json_reader import parse_json

_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")


class ObjectWriter:
    """One object, member by member; what was told so far is what an output that is cut has."""

    def __init__(self, emit: Emitter) -> None:
        self._emit = emit
        self._keys: set[str] = set()
        self._is_repeated = False

    def key(self, key: str) -> None:
        """The next member; its value has to follow. One that there was is left out with its value, as the first one
        has been told."""
        self._is_repeated = key in self._keys
        self._tell(("{" if not self._keys else ", ") + quote(key) + ": ")
        self._keys.add(key)

    def open_string(self) -> None:
        """A value that is a string begins."""
        self._tell('"')

    def string_part(self, text: str) -> None:
        """The next piece of the string."""
        self._tell(quote(text)[1:-1])

    def close_string(self) -> None:
        """The string is complete."""
        self._tell('"')

    def value(self, written: str) -> None:
        """A value that is written as JSON."""
        self._tell(written)

    def close(self) -> None:
        """The object is complete."""
        self._emit.arguments("}" if self._keys else "{}")

    def _tell(self, text: str) -> None:
        if not self._is_repeated:
            self._emit.arguments(text)


def quote(text: str) -> str:
    """As a string of JSON."""
    return json.dumps(text, ensure_ascii=False)


def kinds_of(schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """Types of JSON that a property's schema allows, as far as it says so; empty: it says nothing. References lead
    into `root`, and each is followed once."""
    kinds: set[str] = set()
    pending, followed = [schema], set[str]()
    while pending:
        part = pending.pop()
        if not isinstance(part, Mapping):
            continue
        kinds |= _named_kinds(part)
        for word in ("anyOf", "oneOf", "allOf"):
            parts = part.get(word)
            pending += parts if isinstance(parts, list) else ()
        reference = part.get("$ref")
        if isinstance(reference, str) and reference not in followed:
            followed.add(reference)
            pending.append(_resolve(reference, root))
    return frozenset(kinds)


def _named_kinds(schema: Mapping[str, Any]) -> set[str]:
    """Types that one schema names itself, without what it refers to or has as alternatives."""
    kinds: set[str] = set()
    named = schema.get("type")
    if isinstance(named, str):
        kinds.add(named)
    elif isinstance(named, list):
        kinds.update(kind for kind in named if isinstance(kind, str))
    for choice in schema.get("enum", ()) if isinstance(schema.get("enum"), list) else ():
        kinds.add(_kind_of(choice))
    if "const" in schema:
        kinds.add(_kind_of(schema["const"]))
    return kinds


def properties_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Schemas of a tool's arguments, by name and in their order; empty: it says nothing."""
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    """The schema that a reference names; None: there is none."""
    found: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def property_kinds(schema: Mapping[str, Any], key: str) -> frozenset[str]:
    """Types that the schema of one argument of a tool allows; empty: it says nothing."""
    properties = properties_of(schema)
    if key in properties:
        return kinds_of(properties[key], schema)
    return kinds_of(schema.get("additionalProperties"), schema)


def convert(text: str, kinds: frozenset[str]) -> str:
    """A value that a model wrote bare, as JSON of one of `kinds`; a string where it fits none of them."""
    bare = text.strip()
    word = text if "string" in kinds else bare
    if "null" in kinds and word.lower() in ("null", "none"):
        return "null"
    if "boolean" in kinds and bare.lower() in ("true", "false"):
        return bare.lower()
    if kinds & {"integer", "number"} and _NUMBER.fullmatch(bare):
        return bare
    if kinds & {"object", "array"} and (written := _as_container(bare)):
        return written
    return quote(text)


def as_json(text: str) -> str:
    """A value that says of itself to be JSON; a string where it is none."""
    try:
        parse_json(text)
    except ValueError:
        return quote(text)
    return text.strip()


def _as_container(bare: str) -> str:
    try:
        value = parse_json(bare)
    except ValueError:
        return ""
    return bare if isinstance(value, dict | list) else ""


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {
        str: "string",
        int: "integer",
        float: "number",
        dict: "object",
        list: "array",
        type(None): "null",
    }
    return names[type(value)]
