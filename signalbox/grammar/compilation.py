"""Grammars compiled for a vocabulary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from signalbox.grammar.form import FormError

MAX_REASON_CHARS = 400
LIMITS = LLParserLimits(max_lexer_states=50_000, verbose_errors=False)
"""States of the lexer take 1 to 2 kB each; the other limits are the library's own, about 20 ms of work each."""


def load_tokenizer(path: Path, vocab_size: int | None, eos_token_ids: Sequence[int]) -> LLTokenizer:
    """The vocabulary of a tokenizer.json. Takes up to a second; raises OSError or ValueError.

    vocab_size: columns of the model's logits, at least the tokenizer's own; None: those. Without `eos_token_ids` the
    library takes what is named like one, else token 0: enough to vet forms, not to follow them.
    """
    source = json.loads(path.read_bytes())
    source["truncation"] = source["padding"] = None
    return LLTokenizer(json.dumps(source), n_vocab=vocab_size, eos_token=list(eos_token_ids) or None)


def compile_grammar(tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    """A matcher at the start of `grammar`. Raises FormError; lets other threads run meanwhile."""
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS)
    if matcher.is_error():
        raise FormError(f"cannot be followed: {reason_of(matcher)}")
    warnings = matcher.get_grammar_warnings()
    if warnings:
        raise FormError(f"cannot be followed: {'; '.join(warnings)}")
    return matcher


def reason_of(matcher: LLMatcher) -> str:
    """Why the matcher works no more, on one line."""
    text = " ".join(matcher.get_error().replace("<non-verbose/>", "").split())
    if text.startswith("NoExtension"):
        return "no output satisfies it"
    return text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 4] + " ..."
