"""Every family's grammar of strict calls (LM11): what it takes, what it refuses, and that the family's reader reads all
that it can produce."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from frontend_svc.grammars.strict_calls import FAMILIES as GRAMMARS
from frontend_svc.grammars.strict_calls import strict_form
from frontend_svc.text.parsing.context import Context
from frontend_svc.text.parsing.families import TOOLS as READERS
from frontend_svc.text.parsing.language import Language
from frontend_svc.text.parsing.pieces import Tag
from signalbox.errors import UnsupportedError
from tests.frontend_svc.grammars.vocabulary import KEPT, Vocabulary, Walker, make_vocabulary
from tests.parsing.generator import Generator
from tests.parsing.reading import read
from tests.parsing.writers import FAMILIES, TOOLS, Family

OTHER_STYLES = {"mistral list", "mistral in text", "hermes as a list", "hermes wrapped", "pythonic by place"}
"""A grammar has one way to write: that of the vocabulary and the template."""
WRITE_JSON = {"hermes", "mistral", "llama3_json", "glm45", "glm47"}
JSON_ALSO = {"llama4_json", "deepseek_v3", "deepseek_v31", "kimi_k2", "pythonic", "llama4_pythonic"}
NUM_WALKS = 25
HARD: dict[str, Any] = {
    "book": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where to."},
            "unit": {"enum": ["km", "mile's"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 30},
            "code": {"type": "string", "pattern": "^[A-Z]{2}[0-9]+$"},
            "short": {"type": "string", "minLength": 1, "maxLength": 3},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "either": {"type": ["string", "integer"]},
            "exact": {"type": "boolean", "default": True},
            "stops": {"type": "array", "items": {"$ref": "#/$defs/Stop"}, "minItems": 1, "maxItems": 3},
            "last": {"$ref": "#/$defs/Stop"},
            "when": {"type": "string", "format": "date"},
            "fixed": {"const": 7},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
        "$defs": {
            "Stop": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "open": {"type": ["boolean", "null"]},
                    "size": {"type": "number", "maximum": 9},
                },
                "required": ["name"],
                "additionalProperties": False,
            }
        },
    },
    "tag": {"type": "object", "properties": {"k": {}}, "additionalProperties": {"type": "integer"}},
    "stop": {"type": "object", "properties": {}, "additionalProperties": False},
    "any": {"type": "object"},
}
WORDS = [
    *("a", "Bonn", "12", "3", "-7", "0.5", "null", "true", "True", "None", "false", "km", "AB1", "2026-01-02"),
    *("<", "</"),
    *("{", "}", "[", "]", '"', '"a"', "'", ",", ", ", ":", "\n", " ", "x=", "(", ")", "größe", "\\n", "mile's"),
]  # fmt: skip
LanguageOf = tuple[Language, Vocabulary]
Make = Callable[[str], LanguageOf]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], LanguageOf]:
    known: dict[tuple[str, bool], LanguageOf] = {}

    def of(name: str, special: bool) -> LanguageOf:
        family = FAMILIES[name]
        if (name, special) not in known:
            path: Path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
            tags = list(family.vocabulary)
            if special and family.tools.startswith("deepseek_v") and not tags:
                tags = [KEPT]
            vocabulary = make_vocabulary(path, **{"special" if special else "plain": tags})
            known[name, special] = Language(family.reasoning, family.tools, vocabulary.token_ids), vocabulary
        return known[name, special]

    return of


def words_of(family: Family) -> list[str]:
    reader = READERS[family.tools]
    tags = list(reader.make(Context({})).tags) if reader else []
    return [*WORDS, *(tag for tag in tags for _ in range(4)), *family.tokens]


def test_every_family_has_a_grammar() -> None:
    """LM11: there is no family for which `strict` is not followed."""
    assert {*GRAMMARS, "openai"} == set(READERS)


@pytest.mark.parametrize("special", [False, True], ids=["plain", "special"])
@pytest.mark.parametrize("name", sorted(set(FAMILIES) - OTHER_STYLES))
def test_calls_that_the_family_writes_are_accepted(name: str, special: bool, make: Any) -> None:
    """LM11: with text and reasoning around them."""
    family, (language, vocabulary) = FAMILIES[name], make(name, special)
    forms = [strict_form(language, within, TOOLS) for within in (False, True)]
    generator, taken = Generator(family, "strict"), 0
    for _ in range(40):
        case = generator.case("clean")
        if name == "openai" and (len(case.calls) > 1 or case.expected.content):
            continue  # a message to a function ends the output
        if any(mark in json.dumps(case.calls, ensure_ascii=False) for mark in family.vocabulary):
            continue  # a token that is a tag stands for no text
        units = case.units
        if name == "openai":
            while units and isinstance(units[-1], Tag):
                units = units[:-1]
            if not case.calls:
                continue
        taken += 1
        stop = vocabulary.stop(forms[case.within], ids := vocabulary.ids(units))
        assert stop is None, "".join(
            u if isinstance(u, str) else u.text for u in vocabulary.units(ids[:stop] + ids[stop : stop + 1])
        )
    assert taken > 5


@pytest.mark.parametrize("special", [False, True], ids=["plain", "special"])
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_whatever_follows_the_grammar_is_read_and_fits_its_schema(
    name: str, special: bool, make: Any
) -> None:
    """LM11, LM5."""
    family, (language, vocabulary) = FAMILIES[name], make(name, special)
    form = strict_form(language, False, HARD)
    assert form is not None
    walker = Walker(vocabulary, form, words_of(family), name)
    plan = language.plan("", HARD, reasons=False)
    assert plan is not None
    outputs = [ids for _ in range(NUM_WALKS) if (ids := walker.walk(900, 120)) is not None]
    # Where tags are text, JSON may quote them: two of them a reader takes for the end of a call that was cut (LM5).
    may_quote = family.tools in WRITE_JSON and not (special and family.tokens)
    num_calls = 0
    for units in map(vocabulary.units, outputs):
        for called, arguments in read(plan, units).calls:
            try:
                value = json.loads(arguments)
                jsonschema.validate(value, HARD[called])
            except (ValueError, jsonschema.ValidationError):
                assert may_quote, (arguments, units)
                break
            num_calls += 1
    assert num_calls > 3


STRICT: dict[str, Any] = {
    "f": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
}
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("x", {"a": 1}),
    ("f", {}),
    ("f", {"a": "x"}),
    ("f", {"a": 1.5}),
    ("f", {"b": "x"}),
    ("f", {"a": 1, "c": 2}),
]


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - OTHER_STYLES))
def test_wrong_names_and_arguments_are_refused(name: str, make: Any) -> None:
    """LM11: at the place where they go wrong; text stays free."""
    family, (language, vocabulary) = FAMILIES[name], make(name, False)
    form = strict_form(language, False, STRICT)

    def stop(call: tuple[str, dict[str, Any]]) -> int | None:
        units = family.units(family.write([call]))
        while name == "openai" and isinstance(units[-1], Tag):
            units = units[:-1]
        return vocabulary.stop(form, vocabulary.ids(units))

    assert stop(("f", {"a": 1, "b": "hm"})) is None and stop(("f", {"a": 1})) is None
    for call in WRONG:
        assert stop(call) is not None, call
    if name != "openai":
        for text in ("", "Hello { [there]( <b> ]", "[1](x)", '{"a": 1}', "<", "a <|x| b"):
            assert vocabulary.follows(form, text), text


@pytest.mark.parametrize("tools", sorted(GRAMMARS))
def test_what_no_grammar_can_hold_is_told(tools: str) -> None:
    """LM11: never silently left out; forms of JSON are judged by whoever compiles them."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)y"}}}
    language = Language("", tools, {})
    writes_json = tools in WRITE_JSON - {"glm45", "glm47"} or tools in JSON_ALSO
    if writes_json:
        assert strict_form(language, False, {"f": schema}) is not None
    else:
        with pytest.raises(UnsupportedError, match="strict") as caught:
            strict_form(language, False, {"f": schema})
        assert caught.value.field == "tools"


def growing(levels: int, branches: int) -> dict[str, Any]:
    """A schema of a few kilobytes with `branches ** levels` alternatives."""
    steps = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * branches} for n in range(levels)}
    definitions = steps | {f"d{levels}": {"type": "string"}}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("tools", sorted(GRAMMARS))
def test_alternatives_of_alternatives_take_no_time(tools: str) -> None:
    """LM11: a client's schema keeps no thread, nor takes the memory."""
    language, schema = Language("", tools, {}), growing(14, 6)
    writes_json = tools in WRITE_JSON - {"glm45", "glm47"} or tools in JSON_ALSO - {
        "pythonic",
        "llama4_pythonic",
    }
    if writes_json:
        assert strict_form(language, False, {"f": schema}) is not None
    else:
        with pytest.raises(UnsupportedError, match="more than"):
            strict_form(language, False, {"f": schema})


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["[", "[^", "[\\a", "(?:[", "\\\\["])
def test_a_long_pattern_takes_no_time(piece: str) -> None:
    """Regular expressions run with the interpreter held: all streams of the process would wait."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": piece * 30_000}}}
    assert strict_form(Language("", "qwen3_coder", {}), False, {"f": schema}) is not None


def test_schemas_that_are_too_deep_or_too_large_are_told() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(300):
        deep = {"type": "array", "items": deep}
    large = {"type": "object", "description": "x" * (1 << 20)}
    for schema in (deep, large):
        with pytest.raises(UnsupportedError, match="schemas of tools") as caught:
            strict_form(Language("", "hermes", {}), False, {"f": schema})
        assert caught.value.field == "tools"
