"""Every family's grammar of calls or an answer in a form (LM15): what it takes, what it refuses, and that its reader
tells the one from the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from frontend_svc.grammars.calls_or_answer import calls_or_answer
from frontend_svc.requests.request import StructuredOutput
from frontend_svc.text.parsing.language import Calls, Language
from frontend_svc.text.parsing.pieces import Tag
from signalbox.errors import UnsupportedError
from signalbox.grammar.form import FormKind
from tests.frontend_svc.grammars.test_strict_calls import OTHER_STYLES, STRICT, WRITE_JSON, words_of
from tests.frontend_svc.grammars.vocabulary import KEPT, Vocabulary, Walker, make_vocabulary
from tests.parsing.reading import read
from tests.parsing.writers import FAMILIES, Family, Unit

LanguageOf = tuple[Language, Vocabulary]
Make = Callable[[str, bool], LanguageOf]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "find": {"type": "array", "items": {"$ref": "#/$defs/Found"}}},
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"Found": {"type": "string"}},
}
ANSWER = StructuredOutput(FormKind.JSON_SCHEMA, json.dumps(SCHEMA), field="response_format")
FUNCTIONS: dict[str, Any] = {**STRICT, "find": {"type": "object"}}
"""One that is strict, and one that begins as a word of JSON does."""
OPENING = ("<think>", "[THINK]", "<|channel>", "</think>", "[/THINK]", "<channel|>")
NUM_WALKS = 20
every_family = pytest.mark.parametrize("name", sorted(set(FAMILIES) - OTHER_STYLES))
both_vocabularies = pytest.mark.parametrize("special", [False, True], ids=["plain", "special"])


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    def of(name: str, special: bool) -> LanguageOf:
        family = FAMILIES[name]
        path: Path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
        tags = list(family.vocabulary)
        if special and family.tools.startswith("deepseek_v") and not tags:
            tags = [KEPT]
        vocabulary = make_vocabulary(path, **{"special" if special else "plain": tags})
        return Language(family.reasoning, family.tools, vocabulary.token_ids), vocabulary

    return of


def written(family: Family, *calls: tuple[str, dict[str, Any]]) -> list[Unit]:
    """Calls as the family writes them; of harmony without the token that ends the output."""
    units = family.units(family.write(list(calls)))
    while family.tools == "openai" and isinstance(units[-1], Tag):
        units = units[:-1]
    return units


def answered(family: Family, text: str) -> list[Unit]:
    final = [Tag("<|channel|>"), *"final", Tag("<|message|>")] if family.tools == "openai" else []
    return [*final, *text]


@every_family
@both_vocabularies
def test_calls_and_answers_are_taken_and_nothing_else(name: str, special: bool, make: Make) -> None:
    """LM15: no text, no function that there is not, no call behind an answer; strict tools keep their schema."""
    family, (language, vocabulary) = FAMILIES[name], make(name, special)
    form = calls_or_answer(ANSWER, language, False, FUNCTIONS)

    def follows(units: list[Unit]) -> bool:
        return vocabulary.stop(form, vocabulary.ids(units)) is None

    one, other = ("f", {"a": 1}), ("find", {"q": "x"})
    assert follows(written(family, one)) and follows(written(family, other))
    assert name == "openai" or follows(written(family, one, other))
    answer = answered(family, '{"name": "f", "find": ["false"]}')
    assert follows(answer) and follows(answered(family, '{"name":"find"}'))
    assert not follows(written(family, ("x", {"a": 1}))) and not follows(written(family, ("f", {"b": "x"})))
    for text in ("", "Hello", '{"x": 1}', '{"name": 1}'):
        assert not follows(answered(family, text)), text
    assert not follows([*"So: ", *written(family, one)]) and not follows([*answer, *written(family, one)])


@every_family
@both_vocabularies
def test_whatever_follows_the_grammar_is_read(name: str, special: bool, make: Make) -> None:
    """LM15: an answer may quote all that begins a call or reasoning."""
    family, (language, vocabulary) = FAMILIES[name], make(name, special)
    form = calls_or_answer(ANSWER, language, False, FUNCTIONS)
    plan = language.plan("", FUNCTIONS, calls=Calls.FIRST, reasons=False, is_bound=True)
    assert plan is not None
    words = [*words_of(family), *OPENING, '{"name": "', '{"name": "f', '"parameters": ', '["', "find", '"}']
    walker = Walker(vocabulary, form, words, name)
    # As test_strict_calls: two quoted tags that are text end a call that is JSON.
    may_quote = family.tools in WRITE_JSON and not (special and family.tokens)
    kinds = set()
    for _ in range(NUM_WALKS):
        if (ids := walker.walk(900, 60)) is None:
            continue
        found = read(plan, vocabulary.units(ids), is_whole=True)
        if not (found.calls and may_quote):
            assert bool(found.content) != bool(found.calls), found
        kinds.add("calls" if found.calls else "answer")
        if not found.calls:
            jsonschema.validate(json.loads(found.content), SCHEMA)
    assert kinds


@every_family
def test_answers_that_quote_are_answers(name: str, make: Make) -> None:
    """LM15, LM4: whatever begins a call, quoted with or without marks in a string of JSON."""
    family, (language, vocabulary) = FAMILIES[name], make(name, False)
    form = calls_or_answer(ANSWER, language, False, FUNCTIONS)
    plan = language.plan("", FUNCTIONS, calls=Calls.FIRST, reasons=False, is_bound=True)
    assert plan is not None
    call = "".join(unit if isinstance(unit, str) else unit.text for unit in written(family, ("f", {"a": 1})))
    if name == "openai":
        return  # its tags are tokens, which stand in no string
    for quoted in (f"see {call}", f"<think>{call}", f"\n{call}\n", f" {{ {call}"):
        text = json.dumps({"name": quoted}, ensure_ascii=False)
        units = [*text]
        assert vocabulary.stop(form, vocabulary.spell(text)) is None
        found = read(plan, units, is_whole=True)
        assert (found.content, found.calls, found.reasoning) == (text, [], ""), quoted


def test_behind_reasoning(make: Make) -> None:
    """LM9, LM15: whether the prompt or the output opens it."""
    language, vocabulary = make("hermes", True)
    call = "".join(map(str, FAMILIES["hermes"].write([("f", {"a": 1})])))
    for within, thought in ((False, "<think>hm</think>\n\n"), (True, "hm</think>\n\n"), (False, "")):
        form = calls_or_answer(ANSWER, language, within, FUNCTIONS)
        assert vocabulary.follows(form, thought + '{"name": "a"}') and vocabulary.follows(
            form, thought + call
        )
        assert not vocabulary.follows(form, f"{thought}No.")


@pytest.mark.parametrize("kind", [FormKind.REGEX, FormKind.CHOICE, FormKind.GRAMMAR, FormKind.STRUCTURAL_TAG])
def test_other_kinds_of_forms_are_refused(kind: FormKind, make: Make) -> None:
    """LM15: by the name of their field."""
    form = StructuredOutput(kind, "x", ("x",), "guided_regex")
    with pytest.raises(UnsupportedError, match=r"guided_regex .* tools") as caught:
        calls_or_answer(form, Language("", "hermes"), False, FUNCTIONS)
    assert caught.value.field == "guided_regex"


def test_any_object_may_be_the_answer(make: Make) -> None:
    """LM15, where a call is an object, too."""
    for name in ("llama3_json", "hermes"):
        language, vocabulary = make(name, True)
        form = calls_or_answer(StructuredOutput(FormKind.JSON_OBJECT), language, False, FUNCTIONS)
        assert vocabulary.follows(form, '{"names": {"name": 1}}') and vocabulary.follows(form, "{}")
        assert not vocabulary.follows(form, "[1]") and not vocabulary.follows(form, "{} {}")
