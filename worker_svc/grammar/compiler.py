"""Compiles forms for the model's vocabulary, each once."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from functools import cached_property, partial
from pathlib import Path

from llguidance import LLTokenizer

from signalbox.grammar.compilation import compile_grammar, load_tokenizer
from signalbox.grammar.form import Form
from signalbox.grammar.limits import FormLimits
from signalbox.grammar.vetting import Vetter
from worker_svc.grammar.automaton import CompiledForm, MatcherAutomaton

logger = logging.getLogger(__name__)

MAX_COMPILED = 64
"""Grammars kept; one takes up to some megabytes."""


class GrammarCompiler:
    """Any thread may ask. What is compiled here was vetted before, in a process that can be killed: a form that hangs,
    crashes or takes too much memory does so there."""

    def __init__(
        self, tokenizer: Path, vocab_size: int, eos_token_ids: tuple[int, ...], limits: FormLimits
    ) -> None:
        """tokenizer: path of tokenizer.json. It is read, and the process started, with the first form."""
        self._path, self._vocab_size, self._eos = tokenizer, vocab_size, eos_token_ids
        self._limits = limits
        self._vetter = Vetter(tokenizer, limits, vocab_size=vocab_size, eos_token_ids=eos_token_ids)
        self._compiled: OrderedDict[Form, CompiledForm] = OrderedDict()
        self._lock = threading.Lock()

    def automaton(self, form: Form) -> MatcherAutomaton:
        """A new automaton at the start of `form`. Raises FormError; RuntimeError, OSError or ValueError if nothing can
        be compiled here."""
        with self._lock:
            compiled = self._compiled.get(form)
            if compiled is not None:
                self._compiled.move_to_end(form)
        if compiled is None:
            compiled = self._compile(self._vetter.vet(form))
            self._keep(form, compiled)
        forget = partial(self._forget, form, compiled)
        return MatcherAutomaton(compiled, self._limits, frozenset(self._eos), forget)

    def close(self) -> None:
        """Ends the process that vets."""
        self._vetter.close()

    def _compile(self, grammar: str) -> CompiledForm:
        full = compile_grammar(self._tokenizer, grammar, self._limits)
        return CompiledForm(full, compile_grammar(self._tokenizer, grammar, self._limits, light=True))

    def _keep(self, form: Form, compiled: CompiledForm) -> None:
        with self._lock:
            self._compiled[form] = compiled
            if len(self._compiled) > MAX_COMPILED:
                self._compiled.popitem(last=False)

    def _forget(self, form: Form, compiled: CompiledForm) -> None:
        """Copies share the states of their lexer: one that has run into a limit would take later ones with it."""
        with self._lock:
            if self._compiled.get(form) is compiled:
                del self._compiled[form]

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        tokenizer = load_tokenizer(self._path, self._vocab_size, self._eos)
        logger.info("vocabulary of %d tokens read for grammars", tokenizer.vocab_size)
        return tokenizer
