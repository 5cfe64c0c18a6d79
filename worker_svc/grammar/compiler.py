"""Compiles forms for the model's vocabulary, each once."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from functools import cached_property, partial
from pathlib import Path

from llguidance import LLMatcher, LLTokenizer

from signalbox.grammar.compilation import compile_grammar, load_tokenizer
from signalbox.grammar.form import Form
from signalbox.grammar.vetting import Vetter
from worker_svc.grammar.automaton import MatcherAutomaton

logger = logging.getLogger(__name__)

MAX_COMPILED = 64
"""Grammars kept; one takes up to some megabytes."""


class GrammarCompiler:
    """Any thread may ask. What is compiled here was vetted before, in a process that can be killed: a form that hangs,
    crashes or takes too much memory does so there."""

    def __init__(self, tokenizer: Path, vocab_size: int, eos_token_ids: tuple[int, ...]) -> None:
        """tokenizer: path of tokenizer.json. It is read, and the process started, with the first form."""
        self._path, self._vocab_size, self._eos = tokenizer, vocab_size, eos_token_ids
        self._vetter = Vetter(tokenizer, vocab_size=vocab_size, eos_token_ids=eos_token_ids)
        self._compiled: OrderedDict[Form, LLMatcher] = OrderedDict()
        self._lock = threading.Lock()

    def automaton(self, form: Form) -> MatcherAutomaton:
        """A new automaton at the start of `form`. Raises FormError; RuntimeError, OSError or ValueError if nothing can
        be compiled here."""
        with self._lock:
            matcher = self._compiled.get(form)
            if matcher is not None:
                self._compiled.move_to_end(form)
        if matcher is None:
            matcher = compile_grammar(self._tokenizer, self._vetter.vet(form))
            self._keep(form, matcher)
        forget = partial(self._forget, form, matcher)
        return MatcherAutomaton(matcher.deep_copy(), frozenset(self._eos), forget)

    def close(self) -> None:
        """Ends the process that vets."""
        self._vetter.close()

    def _keep(self, form: Form, matcher: LLMatcher) -> None:
        with self._lock:
            self._compiled[form] = matcher
            if len(self._compiled) > MAX_COMPILED:
                self._compiled.popitem(last=False)

    def _forget(self, form: Form, matcher: LLMatcher) -> None:
        """Copies share the states of their lexer: one that has run into a limit would take later ones with it."""
        with self._lock:
            if self._compiled.get(form) is matcher:
                del self._compiled[form]

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        tokenizer = load_tokenizer(self._path, self._vocab_size, self._eos)
        logger.info("vocabulary of %d tokens read for grammars", tokenizer.vocab_size)
        return tokenizer
