"""Grammars compiled for a vocabulary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from signalbox.grammar.form import FormError
from signalbox.grammar.limits import FormLimits

MAX_REASON_CHARS = 400
MAX_LEXER_STATES = 50_000
"""States of a form's lexer, which all its outputs share; they take 1 to 2 kB each."""
DEAD_END = "NoExtension"
TOO_MANY_ITEMS = "Too many items (limit "


def load_tokenizer(path: Path, vocab_size: int | None, eos_token_ids: Sequence[int]) -> LLTokenizer:
    """The vocabulary of a tokenizer.json. Takes up to a second; raises OSError or ValueError.

    vocab_size: columns of the model's logits, at least the tokenizer's own; None: those. Without `eos_token_ids` the
    library takes what is named like one, else token 0: enough to vet forms, not to follow them.
    """
    source = json.loads(path.read_bytes())
    source["truncation"] = source["padding"] = None
    return LLTokenizer(json.dumps(source), n_vocab=vocab_size, eos_token=list(eos_token_ids) or None)


def compile_grammar(
    tokenizer: LLTokenizer, grammar: str, limits: FormLimits, *, light: bool = False
) -> LLMatcher:
    """A matcher at the start of `grammar`. Raises FormError; lets other threads run meanwhile.

    light: it fails at the first mask that is not light (`FormLimits.light_items`).
    """
    library_limits = LLParserLimits(
        step_max_items=limits.light_items if light else limits.step_max_items,
        step_lexer_fuel=limits.step_lexer_fuel,
        max_items_in_row=limits.max_items_in_row,
        max_lexer_states=MAX_LEXER_STATES,
        verbose_errors=False,
    )
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=library_limits)
    if matcher.is_error():
        raise FormError(f"cannot be followed: {reason_of(matcher)}")
    warnings = matcher.get_grammar_warnings()
    if warnings:
        raise FormError(f"cannot be followed: {'; '.join(warnings)}")
    return matcher


def limit_of(matcher: LLMatcher, limits: FormLimits) -> str:
    """The limit that a matcher has run into, by the name of its setting; empty: none, or it works."""
    text = matcher.get_error()
    if TOO_MANY_ITEMS in text:
        return f"form_step_max_items = {limits.step_max_items}"
    if "Current row has" in text:
        return f"form_max_items_in_row = {limits.max_items_in_row}"
    if "too many expressions constructed" in text or "fuel exhausted" in text:
        return f"form_step_lexer_fuel = {limits.step_lexer_fuel}"
    if "too many states" in text:
        return f"{MAX_LEXER_STATES} states of the lexer"
    return ""


def is_heavy(matcher: LLMatcher) -> bool:
    """Whether a matcher has failed because it made as many items as it may."""
    return TOO_MANY_ITEMS in matcher.get_error()


def is_dead_end(matcher: LLMatcher) -> bool:
    """Whether a matcher has stopped where its grammar allows no token and no end."""
    return matcher.get_error().lstrip().startswith(DEAD_END)


def reason_of(matcher: LLMatcher) -> str:
    """Why the matcher works no more, on one line."""
    text = " ".join(matcher.get_error().replace("<non-verbose/>", "").split())
    if text.startswith(DEAD_END):
        return "no output satisfies it"
    return text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 4] + " ..."
