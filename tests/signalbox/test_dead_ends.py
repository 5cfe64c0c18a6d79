"""Forms lead nowhere that no output leaves: patterns that name nothing new, and dead ends that walks find (G19)."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from signalbox.cli.ring.ring import DEMO_MODEL
from signalbox.grammar.compilation import compile_grammar, load_tokenizer
from signalbox.grammar.form import Form, FormError, FormKind
from signalbox.grammar.limits import FormLimits
from signalbox.grammar.spent_patterns import without_spent_patterns
from signalbox.grammar.translation import to_grammar
from signalbox.grammar.vetter import walk

INTEGER = {"type": "integer"}


@pytest.fixture(scope="module")
def tokenizer() -> LLTokenizer:
    return load_tokenizer(DEMO_MODEL / "tokenizer.json", None, [0])


def closed(properties: dict[str, Any], patterns: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "patternProperties": patterns,
        "additionalProperties": False,
    }


def follows(tokenizer: LLTokenizer, form: Form, text: str) -> bool:
    """Whether an output can begin so."""
    matcher = compile_grammar(tokenizer, to_grammar(form, tokenizer), FormLimits())
    tokens = tokenizer.tokenize_str(text)
    return matcher.validate_tokens(tokens) == len(tokens)


def forms_of(schema: dict[str, Any]) -> list[Form]:
    """The schema by itself, and in a grammar, as behind reasoning."""
    text = json.dumps(schema)
    return [
        Form(FormKind.JSON_SCHEMA, text),
        Form(FormKind.GRAMMAR, f"%llguidance {{}}\nstart: form\nform: %json {text}\n"),
    ]


@pytest.mark.parametrize(
    ("properties", "pattern"),
    [
        ({"a": INTEGER}, "^a$"),
        ({"a": INTEGER, "b": INTEGER}, "^[ab]$"),
        ({"é": INTEGER, 'q"x': INTEGER}, "^é$"),
    ],
)
def test_no_comma_where_no_name_is_left(
    tokenizer: LLTokenizer, properties: dict[str, Any], pattern: str
) -> None:
    """Before, the comma was allowed, and nothing after it: the output ended as 500."""
    text = "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:1" for name in properties)
    for form in forms_of(closed(properties, {pattern: INTEGER})):
        assert follows(tokenizer, form, text + "}")
        assert not follows(tokenizer, form, text + ",")


def test_what_a_spent_pattern_says_holds_for_its_properties(tokenizer: LLTokenizer) -> None:
    for form in forms_of(closed({"a": INTEGER}, {"^a$": {"minimum": 5}})):
        assert follows(tokenizer, form, '{"a":7}')
        assert not follows(tokenizer, form, '{"a":1}')


def test_patterns_that_name_more_stay(tokenizer: LLTokenizer) -> None:
    for pattern in ("^x", "^(a|b)$", "a", "^a|b$"):
        schema = closed({"a": INTEGER}, {pattern: INTEGER})
        assert without_spent_patterns(schema, tokenizer) == schema
    for schema in (
        {"enum": [closed({"a": 1}, {"^a$": 1})]},
        {"properties": {"a": {}}, "patternProperties": {"^a$": {}}},
    ):
        assert without_spent_patterns(schema, tokenizer) == schema


def test_walks_over_single_bytes_find_a_dead_end_that_others_pass_by(tokenizer: LLTokenizer) -> None:
    schema = closed({"a": INTEGER}, {"^a$": INTEGER}) | {"x-guidance": {"whitespace_flexible": False}}
    grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema))  # as the library reads it
    found = []
    for among in (None, tokenizer):
        for seed in range(20):
            try:
                walk(compile_grammar(tokenizer, grammar, FormLimits()), Random(seed), FormLimits(), among)
            except FormError as error:
                found.append((among, str(error)))
    assert found
    assert {among for among, _ in found} == {tokenizer}
    assert all("leads where no output satisfies it" in error for _, error in found)
