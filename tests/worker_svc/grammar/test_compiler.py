"""What is compiled once, and what is compiled anew."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer

from signalbox.cli.ring.ring import DEMO_MODEL
from signalbox.grammar.form import Form, FormError, FormKind
from signalbox.grammar.limits import FormLimits
from worker_svc.core.requests.automaton import GrammarError
from worker_svc.grammar import compiler as module
from worker_svc.grammar.compiler import GrammarCompiler

DIGITS = Form(FormKind.REGEX, "[0-9]+")
NONE = np.empty(0, np.int32)


@pytest.fixture
def compiler() -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(DEMO_MODEL / "tokenizer.json", 4096, (0,), FormLimits())
    yield compiler
    compiler.close()


def count_compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The grammars that are compiled from now on, each once."""
    compiled: list[str] = []
    compile_grammar = module.compile_grammar

    def count(tokenizer: LLTokenizer, grammar: str, limits: FormLimits, *, light: bool = False) -> LLMatcher:
        if not light:
            compiled.append(grammar)
        return compile_grammar(tokenizer, grammar, limits, light=light)

    monkeypatch.setattr(module, "compile_grammar", count)
    return compiled


def first_tokens(compiler: GrammarCompiler, form: Form) -> int:
    masks = np.zeros((1, 128), np.uint32)
    compiler.automaton(form).fill(NONE, masks)
    return int(np.bitwise_count(masks).sum())


def test_equal_forms_are_compiled_once_and_do_not_share_their_place(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G1."""
    compiled = count_compilations(monkeypatch)
    one = compiler.automaton(DIGITS)
    before = first_tokens(compiler, DIGITS)
    one.advance(int(np.flatnonzero(first_mask(compiler))[0]))
    assert first_tokens(compiler, DIGITS) == before and len(compiled) == 1


def first_mask(compiler: GrammarCompiler) -> np.ndarray:  # type: ignore[type-arg]
    masks = np.zeros((1, 128), np.uint32)
    compiler.automaton(DIGITS).fill(NONE, masks)
    return np.unpackbits(masks.view(np.uint8), bitorder="little")


def test_the_oldest_grammar_makes_room(compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_COMPILED", 2)
    compiled = count_compilations(monkeypatch)
    for pattern in ("a", "b", "a", "c", "a", "b"):
        compiler.automaton(Form(FormKind.REGEX, pattern))
    assert len(compiled) == 4, "a stays, b goes"


def test_a_grammar_that_failed_is_compiled_anew(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = count_compilations(monkeypatch)
    broken = compiler.automaton(DIGITS)
    with pytest.raises(GrammarError):
        broken.advance(1000)
    assert first_tokens(compiler, DIGITS) > 0
    assert len(compiled) == 2


def test_a_form_that_would_hang_or_crash_this_process_is_not_compiled_here(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G1."""
    compiled = count_compilations(monkeypatch)
    nested = "start: r0\n" + "\n".join(f"r{i}: r{i + 1}" for i in range(3000)) + '\nr3000: "a"'
    for text in (nested, "start: W\nW: ~/(.*a.{20}b.*)/ & /(a|b){100}/"):
        with pytest.raises(FormError):
            compiler.automaton(Form(FormKind.GRAMMAR, text))
    assert compiled == []
    assert first_tokens(compiler, DIGITS) > 0
