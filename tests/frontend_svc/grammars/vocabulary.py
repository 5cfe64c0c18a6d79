"""Small vocabularies, one token per byte and one per tag, and what a grammar makes of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llguidance import LLMatcher, LLTokenizer
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer

from frontend_svc.requests.request import StructuredOutput
from frontend_svc.text.parsing.pieces import Tag
from signalbox.grammar.compilation import compile_grammar, load_tokenizer
from signalbox.grammar.form import Form
from signalbox.grammar.limits import FormLimits
from signalbox.grammar.translation import to_grammar
from tests.parsing.writers import Unit

EOS = "<eos>"
KEPT = "｜DSML｜"
"""A token that readers are given as text."""


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer, and the same as grammars see it."""

    fast: FastTokenizer
    tokenizer: LLTokenizer

    @property
    def token_ids(self) -> dict[str, int]:
        """Added tokens."""
        return {token.content: number for number, token in self.fast.get_added_tokens_decoder().items()}

    def matcher(self, form: StructuredOutput | None) -> LLMatcher:
        """At the start of a form."""
        assert form is not None
        grammar = to_grammar(Form(form.form, form.text, form.choices), self.tokenizer)
        return compile_grammar(self.tokenizer, grammar, FormLimits())

    def follows(self, form: StructuredOutput | None, text: str) -> bool:
        """Whether a whole output follows a form."""
        return self.stop(form, self.fast.encode(text).ids) is None

    def stop(self, form: StructuredOutput | None, ids: Sequence[int]) -> int | None:
        """The place of the first token that the form forbids; None: it is followed to an end."""
        matcher = self.matcher(form)
        legal = matcher.validate_tokens(list(ids))
        if legal < len(ids):
            return legal
        matcher.consume_tokens(list(ids))
        return None if matcher.is_accepting() else len(ids)

    def ids(self, units: Sequence[Unit]) -> list[int]:
        """Tags as tokens, text as bytes."""
        if KEPT in self.token_ids:
            return list(self.fast.encode("".join(u if isinstance(u, str) else u.text for u in units)).ids)
        found: list[int] = []
        for unit in units:
            if isinstance(unit, Tag) and unit.text in self.token_ids:
                found.append(self.token_ids[unit.text])
            else:
                found += self.spell(unit if isinstance(unit, str) else unit.text)
        return found

    def spell(self, text: str) -> list[int]:
        """Text as bytes, whatever it is."""
        return [self.fast.token_to_id(_ALPHABET[byte]) for byte in text.encode()]

    def units(self, ids: Sequence[int]) -> list[Unit]:
        """The other way round; half characters become a mark."""
        names = {number: name for name, number in self.token_ids.items()}
        units: list[Unit] = []
        held = bytearray()
        for number in ids:
            if names.get(number) == KEPT:
                held += KEPT.encode()
            elif number in names:
                units += held.decode(errors="replace")
                held.clear()
                units.append(Tag(names[number]))
            else:
                held.append(_BYTES[self.fast.id_to_token(number)])
        return [*units, *held.decode(errors="replace")]


def _byte_names() -> dict[int, str]:
    """The character that stands for each byte, as in byte-level vocabularies."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {byte: chr(byte) for byte in plain}
    rest = [byte for byte in range(256) if byte not in names]
    return names | {byte: chr(256 + index) for index, byte in enumerate(rest)}


_ALPHABET = _byte_names()
_BYTES = {name: byte for byte, name in _ALPHABET.items()}


def make_vocabulary(path: Path, special: Sequence[str] = (), plain: Sequence[str] = ()) -> Vocabulary:
    """Writes `path` and reads it."""
    fast = FastTokenizer(models.BPE({name: byte for byte, name in _ALPHABET.items()}, []))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([AddedToken(text, special=True) for text in (*special, EOS)])
    fast.add_tokens([AddedToken(text, special=False) for text in plain])
    fast.save(str(path))
    return Vocabulary(fast, load_tokenizer(path, None, [fast.token_to_id(EOS)]))


class Walker:
    """Walks through a grammar at random, with words that lead somewhere."""

    def __init__(
        self, vocabulary: Vocabulary, form: StructuredOutput, words: Sequence[str], seed: str
    ) -> None:
        self._vocabulary, self._words = vocabulary, [vocabulary.fast.encode(word).ids for word in words]
        self._random = random.Random(seed)
        self._start = vocabulary.matcher(form)
        self._eos = vocabulary.token_ids[EOS]

    def walk(self, max_tokens: int, min_tokens: int) -> list[int] | None:
        """The tokens of one output; None: it came to no end."""
        matcher, ids = self._start.deep_copy(), list[int]()
        while len(ids) < max_tokens:
            if matcher.is_stopped() or (matcher.is_accepting() and len(ids) >= min_tokens):
                return ids
            word = self._random.choice(self._words)
            taken = word[: matcher.validate_tokens(word)]
            if not taken or self._random.random() < 0.1:
                taken = [self._any(matcher)]
            if taken[0] == self._eos:
                return ids
            assert matcher.consume_tokens(taken), matcher.get_error()
            ids += taken
        return None

    def _any(self, matcher: LLMatcher) -> int:
        """Any token that is allowed, printable ones first."""
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        assert mask, matcher.get_error()
        allowed = [number for number in range(mask.bit_length()) if mask >> number & 1]
        ends = [number for number in allowed if number != self._eos] or allowed
        printable = [number for number in ends if 32 <= number < 127]
        return self._random.choice(printable or ends)


__all__ = ["EOS", "KEPT", "Vocabulary", "Walker", "make_vocabulary"]
