"""What grammars have to know of a JSON schema: which kinds of values it allows, and which strings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from frontend_svc.grammars.lark import ANYTHING, literal

Schema = Mapping[str, Any]
_DESCRIPTIVE = (
    "title description examples default deprecated readOnly writeOnly strict $comment $schema $id $anchor"
)
ANNOTATIONS = frozenset(_DESCRIPTIVE.split(" "))
_BY_NAME = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_OF_STRINGS = ("pattern", "minLength", "maxLength", "format")
_OF_OBJECTS = ("properties", "required", "additionalProperties")
_OF_KINDS: Mapping[str, tuple[str, ...]] = {
    "object": _OF_OBJECTS,
    "array": ("items", "minItems", "maxItems"),
    "string": _OF_STRINGS,
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
MAX_DEPTH = 16
"""References and alternatives within each other."""
MAX_READ = 4000
"""Schemas looked at for one function: alternatives of references of alternatives are more than there is time for."""
_ESCAPED_OR_CLASS = re.compile(r"\\(?:.|\Z)|\[\^?\]?(?:[^\]\\]|\\(?:.|\Z))*+(?:\]|\Z)")
"""Fails nowhere behind its beginning, so that it takes time in proportion to the text."""
DATE, TIME = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?"
_ZONE = r"(Z|[+\-]([01]\d|2[0-3]):[0-5]\d)"
_BYTE = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
FORMATS = {
    "date": DATE,
    "time": TIME + _ZONE,
    "date-time": f"{DATE}T{TIME}{_ZONE}",
    "uuid": r"[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}",
    "ipv4": rf"({_BYTE}\.){{3}}{_BYTE}",
    "email": r"[A-Za-z0-9_+\-]+(\.[A-Za-z0-9_+\-]+)*@([A-Za-z0-9]([A-Za-z0-9\-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]{2,63}",
    "hostname": r"[A-Za-z0-9]([A-Za-z0-9\-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9\-]{0,61}[A-Za-z0-9])?)*",
}
"""What strings of a format look like, where no library of JSON writes them; other formats say nothing."""


class UnboundError(Exception):
    """The schema says something that no grammar of the model's language has; the message says what."""


def lean(schema: Any) -> Any:
    """The schema without what only describes."""
    if isinstance(schema, list):
        return [lean(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept: dict[str, Any] = {}
    for word, value in schema.items():
        if word in ANNOTATIONS:
            continue
        if word in _BY_NAME and isinstance(value, Mapping):
            kept[word] = {name: lean(part) for name, part in value.items()}
        else:
            kept[word] = value if word in ("enum", "const", "required") else lean(value)
    return kept


def moved(schema: Any, place: str) -> Any:
    """The schema with references into itself as they are where it stands at `place` of another one."""
    if isinstance(schema, list):
        return [moved(part, place) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = {}
    for word, value in schema.items():
        if word == "$ref" and isinstance(value, str) and value.startswith("#"):
            found[word] = place + value[1:]
        elif word in _BY_NAME and isinstance(value, Mapping):
            found[word] = {name: moved(part, place) for name, part in value.items()}
        else:
            found[word] = value if word in ("enum", "const", "required", "default") else moved(value, place)
    return found


@dataclass(frozen=True)
class Scope:
    """The schema of a function's arguments, in which references are looked for."""

    root: Schema
    _read: Iterator[int] = field(default_factory=lambda: iter(range(MAX_READ)))
    """How many schemas may still be looked at."""

    def resolve(self, reference: str) -> Any:
        """The schema that `reference` names. Raises UnboundError."""
        found: Any = self.root
        if not reference.startswith("#"):
            raise UnboundError(f"the reference {reference!r} leads out of it")
        for part in reference[1:].split("/")[1:]:
            found = (
                found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
            )
            if found is None:
                raise UnboundError(f"the reference {reference!r} leads nowhere")
        return found

    def closed(self, schema: Any) -> Any:
        """The schema with the definitions that its references name, to stand alone."""
        if not isinstance(schema, Mapping):
            return schema
        held = {word: self.root[word] for word in ("$defs", "definitions") if word in self.root}
        return {**held, **schema}

    def branches(self, schema: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
        """The schema as alternatives, each of one type, with an `enum`, or without any condition. Raises
        UnboundError."""
        if schema is True:
            schema = {}
        if not isinstance(schema, Mapping):
            raise UnboundError("a schema allows nothing")
        if depth > MAX_DEPTH:
            raise UnboundError("references and alternatives are nested too deeply")
        if next(self._read, None) is None:
            raise UnboundError(f"references and alternatives are more than {MAX_READ} schemas")
        rest = dict(schema)
        for word in ("$ref", "allOf", "anyOf", "oneOf"):
            if word not in rest:
                continue
            value = rest.pop(word)
            if word == "$ref":
                yield from self.branches(merged(self.resolve(value), rest), depth + 1)
            elif word == "allOf":
                for part in value:
                    rest = merged(rest, self._open(part))
                yield from self.branches(rest, depth + 1)
            else:
                for part in value:
                    yield from self.branches(merged(self._open(part), rest), depth + 1)
            return
        yield from _by_type(rest)

    def _open(self, schema: Any) -> Any:
        """The schema behind a reference."""
        for _ in range(MAX_DEPTH):
            if not (isinstance(schema, Mapping) and "$ref" in schema):
                return schema
            rest = {word: value for word, value in schema.items() if word != "$ref"}
            schema = merged(self.resolve(schema["$ref"]), rest)
        raise UnboundError("references are nested too deeply")


def merged(one: Any, other: Any) -> dict[str, Any]:
    """What follows both schemas. Raises UnboundError."""
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        if one is True and isinstance(other, Mapping):
            return dict(other)
        raise UnboundError("a schema allows nothing")
    result = dict(one)
    for word, value in other.items():
        if word not in result or result[word] == value or word in ANNOTATIONS:
            result[word] = value
        elif word in ("properties", "$defs", "definitions"):
            result[word] = {**result[word], **value}
        elif word == "required":
            result[word] = [*result[word], *(name for name in value if name not in result[word])]
        elif word == "enum":
            result[word] = [choice for choice in result[word] if choice in value]
        elif word == "type":
            result[word] = _common_types(result[word], value)
        else:
            raise UnboundError(f"{word!r} is said twice, by alternatives and around them")
    return result


def _common_types(one: Any, other: Any) -> list[str]:
    kinds, others = ({each} if isinstance(each, str) else set(each) for each in (one, other))
    if not kinds & others:
        raise UnboundError("no type is left")
    return sorted(kinds & others)


def _by_type(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kinds = schema.get("type")
    if isinstance(kinds, str):
        kinds = [kinds]
    if "const" in schema or "enum" in schema:
        choices = [schema["const"]] if "const" in schema else schema["enum"]
        fitting = [
            choice for choice in choices if kinds is None or any(is_kind(choice, kind) for kind in kinds)
        ]
        if not fitting:
            raise UnboundError("no choice is left")
        yield {"enum": fitting}
        return
    words = {word: value for word, value in schema.items() if word not in ANNOTATIONS and word != "type"}
    if not kinds:
        yield words
    for kind in kinds or ():
        others = {word for each, own in _OF_KINDS.items() if each != kind for word in own}
        others -= set(_OF_KINDS.get(kind, ()))
        yield {"type": kind} | {word: value for word, value in words.items() if word not in others}


def is_kind(value: Any, kind: str) -> bool:
    """Whether a value of JSON is of a type."""
    match kind:
        case "boolean":
            return isinstance(value, bool)
        case "integer" | "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "null":
            return value is None
        case "object":
            return isinstance(value, Mapping)
        case "array":
            return isinstance(value, list)
    return False


def string_patterns(schema: Schema) -> list[str]:
    """Regular expressions that a bare string has to fit, all of them; none: it is free. Raises UnboundError."""
    patterns = []
    if "pattern" in schema:
        patterns.append(whole_pattern(schema["pattern"]))
    if schema.get("format") in FORMATS:
        patterns.append(FORMATS[schema["format"]])
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if least or most is not None:
        patterns.append(rf"(.|\n){{{least},{'' if most is None else most}}}")
    return patterns


def whole_pattern(pattern: str) -> str:
    """A schema's pattern, which may fit anywhere in a string, as one for all of the string. Raises UnboundError."""
    if re.search(r"\(\?([=!]|<[=!])|(?<!\\)\\[1-9bB]", pattern):
        raise UnboundError(f"the pattern {pattern!r} looks around or back")
    body = pattern.replace("/", r"\x{2F}").replace("\n", r"\n")
    begins, ends = body.startswith("^"), bool(re.search(r"(?<!\\)(\\\\)*\$$", body))
    body = body[1:] if begins else body
    body = body[:-1] if ends else body
    inner = _ESCAPED_OR_CLASS.sub("", body)
    if "^" in inner or "$" in inner or (("|" in inner) and (begins or ends) and not _is_grouped(inner)):
        raise UnboundError(f"the pattern {pattern!r} has anchors within")
    return f"{'' if begins else ANYTHING}({body}){'' if ends else ANYTHING}"


def _is_grouped(inner: str) -> bool:
    """Every alternative stands in brackets."""
    depth = 0
    for character in inner:
        depth += (character == "(") - (character == ")")
        if character == "|" and depth == 0:
            return False
    return True


def object_members(schema: Schema, scope: Scope) -> tuple[dict[str, Any], frozenset[str], Any]:
    """Properties by name, those that are required, and the schema of others (None: there are none). Raises
    UnboundError for an object that says more."""
    known = {*_OF_OBJECTS, "type", "$defs", "definitions", *ANNOTATIONS}
    if more := sorted(set(schema) - known):
        raise UnboundError(f"{', '.join(more)} of an object")
    properties = dict(schema.get("properties") or {})
    others = schema.get("additionalProperties", True)
    required = frozenset(schema.get("required") or ())
    for name in required - set(properties):
        if others is False:
            raise UnboundError(f"{name!r} is required, and not allowed")
        properties[name] = others
    return properties, required, None if others is False else others


def arguments_of(parameters: Schema) -> tuple[Scope, dict[str, Any], frozenset[str], Any]:
    """The scope of a function's parameters, and its members. Raises UnboundError."""
    scope = Scope(parameters)
    branches = list(scope.branches(parameters))
    if len(branches) != 1 or branches[0].get("type", "object") != "object":
        raise UnboundError("the arguments are not one kind of object")
    return (scope, *object_members(branches[0], scope))


def choices_pattern(choices: list[str]) -> str:
    """A regular expression for one of some strings."""
    return f"({'|'.join(map(literal, choices))})"
