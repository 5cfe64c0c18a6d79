"""Automata over the demo model's vocabulary, against what Python says of the finished text."""

from __future__ import annotations

import json
import re

import jsonschema
import numpy as np
import pytest
from llguidance import LLTokenizer
from numpy.typing import NDArray
from tokenizers import Tokenizer

from signalbox.cli.ring.ring import DEMO_MODEL
from signalbox.grammar.compilation import compile_grammar, load_tokenizer
from signalbox.grammar.form import Form, FormKind
from signalbox.grammar.limits import FormLimits
from signalbox.grammar.translation import to_grammar
from worker_svc.core.requests.automaton import GrammarError
from worker_svc.grammar.automaton import CompiledForm, MatcherAutomaton

PATH = DEMO_MODEL / "tokenizer.json"
EOS = 0
V = 4100  # a few columns more than the tokenizer has tokens
WORDS = -(-V // 32)
NONE = np.empty(0, np.int32)
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b", None]}, "maxItems": 3},
        "at": {
            "anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[a-f]{2}-[0-9]+$", "maxLength": 9}]
        },
    },
    "required": ["name", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def vocabulary() -> LLTokenizer:
    return load_tokenizer(PATH, V, (EOS,))


@pytest.fixture(scope="module")
def text() -> Tokenizer:
    return Tokenizer.from_file(str(PATH))


def make(
    vocabulary: LLTokenizer, kind: FormKind, content: str = "", choices: tuple[str, ...] = ()
) -> MatcherAutomaton:
    grammar = to_grammar(Form(kind, content, choices), vocabulary)
    limits = FormLimits()
    full = compile_grammar(vocabulary, grammar, limits)
    compiled = CompiledForm(full, compile_grammar(vocabulary, grammar, limits, light=True))
    return MatcherAutomaton(compiled, limits, frozenset({EOS}), lambda: None)


def masks(automaton: MatcherAutomaton, drafts: NDArray[np.int32] = NONE) -> NDArray[np.bool_]:
    """[1 + drafts, V]"""
    words = np.zeros((1 + len(drafts), WORDS), np.uint32)
    automaton.fill(drafts, words)
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").astype(bool)
    assert not bits[:, 4096:].any(), "columns without a token"
    return bits[:, :V]


def walk(automaton: MatcherAutomaton, seed: int, longest: int = 300) -> list[int] | None:
    """A random output that the masks allow, the end token left out; None: it came to no end."""
    rng = np.random.default_rng(seed)
    output: list[int] = []
    while not automaton.is_complete and len(output) < longest:
        token = int(rng.choice(np.flatnonzero(masks(automaton)[0])))
        automaton.advance(token)
        output.append(token)
    return [token for token in output if token != EOS] if automaton.is_complete else None


def finished_texts(vocabulary: LLTokenizer, text: Tokenizer, kind: FormKind, content: str) -> list[str]:
    outputs = [walk(make(vocabulary, kind, content), seed) for seed in range(40)]
    found = [text.decode(output, skip_special_tokens=False) for output in outputs if output is not None]
    assert len(found) >= 10
    return found


@pytest.mark.parametrize(
    "pattern", [r"[a-z]{3,8}@[a-z]{2,5}\.(com|org)", r"(a|bc)+d", r"x(yz)?", r"-?[0-9]{1,3}"]
)
def test_outputs_match_their_regular_expression(
    vocabulary: LLTokenizer, text: Tokenizer, pattern: str
) -> None:
    for found in finished_texts(vocabulary, text, FormKind.REGEX, pattern):
        assert re.fullmatch(pattern, found), found


def test_outputs_validate_against_their_schema(vocabulary: LLTokenizer, text: Tokenizer) -> None:
    for found in finished_texts(vocabulary, text, FormKind.JSON_SCHEMA, json.dumps(PERSON)):
        jsonschema.validate(json.loads(found), PERSON)


def test_a_json_object_is_one(vocabulary: LLTokenizer, text: Tokenizer) -> None:
    outputs = [walk(make(vocabulary, FormKind.JSON_OBJECT), seed) for seed in range(60)]
    found = [text.decode(output) for output in outputs if output is not None]
    assert found and all(isinstance(json.loads(value), dict) for value in found)


def test_every_choice_can_be_had_and_nothing_else(vocabulary: LLTokenizer, text: Tokenizer) -> None:
    choices = ("yes", "no", "no way", 'é "😀"\n', "")
    outputs = [walk(make(vocabulary, FormKind.CHOICE, choices=choices), seed) for seed in range(60)]
    found = {text.decode(output) for output in outputs if output is not None}
    assert found == set(choices)


def test_a_grammar_counts_its_brackets(vocabulary: LLTokenizer, text: Tokenizer) -> None:
    for found in finished_texts(vocabulary, text, FormKind.GRAMMAR, 'root ::= "(" root ")" | [a-c]'):
        assert found.count("(") == found.count(")") and re.fullmatch(r"\(*[a-c]\)*", found)


def test_tags_begin_their_structures(vocabulary: LLTokenizer, text: Tokenizer) -> None:
    tag = {
        "structures": [{"begin": "<t=", "schema": {"enum": [1, 22]}, "end": ">"}],
        "triggers": ["<t"],
    }
    automaton = make(vocabulary, FormKind.STRUCTURAL_TAG, json.dumps(tag))
    for token in text.encode("free < text <t").ids:
        automaton.advance(token)
    allowed = np.flatnonzero(masks(automaton)[0]).tolist()
    assert allowed == text.encode("=").ids, "a trigger leaves no choice"
    for token in text.encode("=22>").ids:
        automaton.advance(token)
    assert masks(automaton)[0][EOS] and masks(automaton)[0].sum() > 1000, "free again"


def test_the_end_is_allowed_exactly_when_the_form_is_fulfilled(
    vocabulary: LLTokenizer, text: Tokenizer
) -> None:
    """G7."""
    automaton = make(vocabulary, FormKind.REGEX, "ab*c?")
    assert not masks(automaton)[0][EOS]
    automaton.advance(text.token_to_id("a"))
    assert masks(automaton)[0][EOS] and not automaton.is_complete
    automaton.advance(text.token_to_id("c"))
    assert automaton.is_complete


@pytest.mark.parametrize("seed", range(12))
def test_masks_of_drafts_are_those_of_the_steps_one_by_one(vocabulary: LLTokenizer, seed: int) -> None:
    """G6."""
    whole = walk(make(vocabulary, FormKind.JSON_SCHEMA, json.dumps(PERSON)), seed)
    if whole is None:
        return
    one_by_one, drafted = (make(vocabulary, FormKind.JSON_SCHEMA, json.dumps(PERSON)) for _ in range(2))
    start = 0
    while start < len(whole):
        drafts = np.array(whole[start : start + 5], np.int32)
        together = masks(drafted, drafts)
        assert (masks(drafted) == together[0]).all(), "drafts leave no trace"
        assert drafted.legal_drafts(drafts) == len(drafts)
        for offset, token in enumerate(drafts.tolist()):
            assert (masks(one_by_one)[0] == together[offset]).all()
            assert not one_by_one.is_complete
            one_by_one.advance(token)
            drafted.advance(token)
        assert drafted.is_complete == one_by_one.is_complete
        assert (masks(one_by_one)[0] == together[-1]).all()
        start += len(drafts)


def test_drafts_count_up_to_the_first_illegal_one_or_the_end(
    vocabulary: LLTokenizer, text: Tokenizer
) -> None:
    """G6."""
    a, b = text.token_to_id("a"), text.token_to_id("b")
    automaton = make(vocabulary, FormKind.REGEX, "a+")
    for drafts, legal in (([a, a, b, a], 2), ([b], 0), ([a, EOS, a], 1), ([EOS], 0), ([], 0)):
        assert automaton.legal_drafts(np.array(drafts, np.int32)) == legal
    automaton.advance(a)
    assert masks(automaton)[0][a]


def test_a_forbidden_token_raises_and_so_does_every_mask_behind_it(
    vocabulary: LLTokenizer, text: Tokenizer
) -> None:
    automaton = make(vocabulary, FormKind.REGEX, "a+")
    with pytest.raises(GrammarError, match="doesn't satisfy"):
        automaton.advance(text.token_to_id("b"))
    assert not automaton.is_complete
    with pytest.raises(GrammarError):
        masks(automaton)
