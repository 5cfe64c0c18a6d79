"""Limits on the work of masks: public schemas stay below them, and where a hostile form reaches one depends on its
output alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from llguidance import LLTokenizer

from signalbox.benchmarks.forms.corpus import read_corpus
from signalbox.benchmarks.forms.follow import Followed, follow
from signalbox.benchmarks.forms.hostile import hostile_forms
from signalbox.cli.ring.ring import DEMO_MODEL
from signalbox.grammar.compilation import compile_grammar, load_tokenizer
from signalbox.grammar.form import Form, FormError, FormKind
from signalbox.grammar.limits import FormLimits
from signalbox.grammar.vetter import vet
from signalbox.grammar.vetting import Vetter
from worker_svc.core.requests.automaton import FormLimitError, GrammarError
from worker_svc.grammar.automaton import CompiledForm, MatcherAutomaton

PATH = DEMO_MODEL / "tokenizer.json"
V = 4096
LIMITS = FormLimits()
AMBIGUOUS = Form(FormKind.GRAMMAR, 'root ::= s s s s s s s s s s\ns ::= [a-z] | s s | ""')
NUM_TOKENS = 80


@pytest.fixture(scope="module")
def tokenizer() -> LLTokenizer:
    return load_tokenizer(PATH, V, (0,))


@pytest.fixture(scope="module")
def vetter() -> Iterator[Vetter]:
    vetter = Vetter(PATH, LIMITS, vocab_size=V, eos_token_ids=(0,))
    yield vetter
    vetter.close()


def compiled(tokenizer: LLTokenizer, grammar: str, limits: FormLimits = LIMITS) -> CompiledForm:
    full = compile_grammar(tokenizer, grammar, limits)
    return CompiledForm(full, compile_grammar(tokenizer, grammar, limits, light=True))


def automaton_of(
    form: CompiledForm, limits: FormLimits, kind: type[MatcherAutomaton] = MatcherAutomaton
) -> MatcherAutomaton:
    return kind(form, limits, frozenset({0}), lambda: None)


def test_public_schemas_pass_and_their_masks_are_light(tokenizer: LLTokenizer) -> None:
    """G8."""
    corpus = read_corpus()
    assert len(corpus) == 200
    strict = FormLimits(max_heavy_masks=1)
    for name, form in corpus.items():
        followed = follow(automaton_of(compiled(tokenizer, vet(form, tokenizer, LIMITS)), strict), V, 0, 60)
        assert not followed.error, (name, followed.error)


class Place(NamedTuple):
    """Where an output came to, and why it went no further."""

    tokens: list[int]
    error: str


def with_drafts(automaton: MatcherAutomaton, expected: list[int], seed: int) -> Place:
    """Takes `expected` in steps of drafts, of which some are wrong, and tries for one token more."""
    numbers, taken = random.Random(seed), 0
    while taken < len(expected):
        drafts = expected[taken : taken + numbers.randrange(5)]
        if drafts and numbers.random() < 0.4:
            drafts[-1] = numbers.randrange(1, V)
        drafts = drafts[: automaton.legal_drafts(np.array(drafts, np.int32))]
        masks = np.zeros((1 + len(drafts), V // 32), np.uint32)
        num_masks = len(masks)
        try:
            automaton.fill(np.array(drafts, np.int32), masks)
        except GrammarError as error:
            if not error.num_masks:
                return Place(expected[:taken], str(error))
            num_masks = error.num_masks
        if numbers.random() < 0.1:
            continue  # the step's tokens were withdrawn
        for draft in [*drafts[: num_masks - 1], None]:
            if taken == len(expected):
                break
            try:
                automaton.advance(expected[taken])
            except GrammarError as error:
                return Place(expected[:taken], str(error))
            taken += 1
            if draft != expected[taken - 1]:
                break
    return Place(expected, final_error(automaton))


def replayed(automaton: MatcherAutomaton, expected: list[int]) -> Place:
    """Takes `expected` as the output of an earlier attempt, and tries for one token more."""
    for place, token in enumerate(expected):
        try:
            automaton.advance(token)
        except GrammarError as error:
            return Place(expected[:place], str(error))
    return Place(expected, final_error(automaton))


def final_error(automaton: MatcherAutomaton) -> str:
    if automaton.is_complete:
        return ""
    try:
        automaton.fill(np.empty(0, np.int32), np.zeros((1, V // 32), np.uint32))
    except GrammarError as error:
        return str(error)
    return ""


Compiled = dict[str, CompiledForm]
SPARE = FormLimits(max_heavy_masks=6)


@pytest.fixture(scope="module")
def hostile(tokenizer: LLTokenizer, vetter: Vetter) -> Compiled:
    """The hostile forms that are not refused at once."""
    forms = hostile_forms()
    assert len(forms) == 50
    passed: Compiled = {}
    for name, form in forms.items():
        try:
            passed[name] = compiled(tokenizer, vetter.vet(form), SPARE)
        except FormError:
            continue
    assert 25 <= len(passed) <= 45
    return passed


def differing(
    forms: Compiled, again: Callable[[MatcherAutomaton, list[int]], Place], kind: type[MatcherAutomaton]
) -> list[str]:
    """The forms whose outputs end otherwise, or elsewhere, when they are followed in another way."""
    found = []
    for limits in (SPARE, LIMITS):
        for name, form in forms.items():
            first: Followed = follow(automaton_of(form, limits), V, 1, NUM_TOKENS)
            expected = Place(first.tokens, first.error or final_error_after(form, limits, first.tokens))
            place = again(automaton_of(form, limits, kind), first.tokens)
            # What the lexer has met before, in whatever output of the form, it does not do again.
            if place != expected and "lexer" not in expected.error + place.error:
                found.append(name)
    return found


def final_error_after(form: CompiledForm, limits: FormLimits, tokens: list[int]) -> str:
    """What the next mask fails with where each mask was made for itself."""
    automaton = automaton_of(form, limits)
    for token in tokens:
        automaton.fill(np.empty(0, np.int32), np.zeros((1, V // 32), np.uint32))
        automaton.advance(token)
    return final_error(automaton)


def test_hostile_forms_end_at_a_limit_that_the_error_names(hostile: Compiled) -> None:
    """G8."""
    errors = [
        follow(automaton_of(form, limits), V, 1, NUM_TOKENS).error
        for form in hostile.values()
        for limits in (LIMITS, SPARE)
    ]
    for limit in ("form_step_max_items = 3000", "form_max_heavy_masks = 6"):
        assert any(limit in error for error in errors), limit


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_drafts_change_nothing_about_where_a_form_ends(hostile: Compiled, seed: int) -> None:
    """G9."""
    assert differing(hostile, partial(with_drafts, seed=seed), MatcherAutomaton) == []


def test_a_replay_counts_what_the_first_attempt_has_counted(hostile: Compiled) -> None:
    """G9."""
    assert differing(hostile, replayed, MatcherAutomaton) == []


class ForgetsReplays(MatcherAutomaton):
    """Planted: output of an earlier attempt is not counted."""

    def _count_mask(self) -> None:
        pass


class CountsLostDrafts(MatcherAutomaton):
    """Planted: masks of drafts count that came to nothing."""

    def _drop_drafts(self) -> None:
        pass


def test_a_count_that_a_replay_forgets_is_found(hostile: Compiled) -> None:
    assert differing(hostile, replayed, ForgetsReplays)


def test_a_count_of_lost_drafts_is_found(hostile: Compiled) -> None:
    assert any(differing(hostile, partial(with_drafts, seed=seed), CountsLostDrafts) for seed in range(8))


def test_limits_are_those_of_the_vetting_too() -> None:
    """G8."""
    vetter = Vetter(PATH, FormLimits(step_max_items=100), eos_token_ids=(0,))
    with pytest.raises(
        FormError, match=r"too much work at its token \d+: more than form_step_max_items = 100$"
    ):
        vetter.vet(AMBIGUOUS)
    vetter.close()


def test_an_error_says_the_limit_and_the_token(tokenizer: LLTokenizer) -> None:
    """G8."""
    form = compiled(tokenizer, vet(AMBIGUOUS, tokenizer, LIMITS))
    automaton = automaton_of(form, LIMITS)
    followed = follow(automaton, V, 0, 300)
    place = len(followed.tokens) + 1
    assert followed.error == (
        f"asks for too much work at output token {place}: more than form_step_max_items = 3000"
    )
    with pytest.raises(FormLimitError):
        automaton.fill(np.empty(0, np.int32), np.zeros((1, V // 32), np.uint32))
