"""Tokens of one text or of a pair, with the tokenizer's own tokens around them, cut where they are too many."""

from __future__ import annotations

from typing import NamedTuple

from tokenizers import Encoding
from tokenizers import Tokenizer as FastTokenizer

from signalbox.errors import InvalidRequestError


class Parts(NamedTuple):
    """What is to be tokenized."""

    first: str
    second: str | None = None
    """The second part of a pair; None: there is one text."""
    add_special_tokens: bool = True
    max_tokens: int | None = None
    """Most tokens of the whole: a text loses its end, of a pair the longer part first. None: nothing is cut."""
    max_second_tokens: int | None = None
    """Most tokens of the second part alone; None: nothing is cut."""

    @property
    def num_chars(self) -> int:
        """Characters of both."""
        return len(self.first) + len(self.second or "")


class TokenizedParts(NamedTuple):
    """The tokens, and how many of them are of the first part."""

    token_ids: list[int]
    num_first_tokens: int
    """Tokens ahead of those of type 1; 0: none has type 1."""


def tokenize_parts(fast: FastTokenizer, parts: Parts) -> TokenizedParts:
    """As the tokenizer encodes both together. Raises InvalidRequestError where its own tokens leave no room."""
    # The batch calls alone leave the interpreter to others, and "fast" leaves out offsets, which nobody reads.
    texts = [parts.first] if parts.second is None else [parts.first, parts.second]
    first, *others = fast.encode_batch_fast(texts, add_special_tokens=False)
    second = others[0] if others else None
    if second is not None and parts.max_second_tokens is not None:
        second.truncate(parts.max_second_tokens)
    if parts.max_tokens is not None:
        special = fast.num_special_tokens_to_add(second is not None) if parts.add_special_tokens else 0
        room = parts.max_tokens - special
        if room < 1:
            raise InvalidRequestError(
                f"truncate_prompt_tokens is {parts.max_tokens}, of which the tokenizer's own take {special}",
                field="truncate_prompt_tokens",
            )
        _cut(first, second, room)
    whole = fast.post_process(first, second, parts.add_special_tokens)
    types = whole.type_ids
    return TokenizedParts(whole.ids, types.index(1) if 1 in types else 0)


def _cut(first: Encoding, second: Encoding | None, room: int) -> None:
    """Cuts both to `room` tokens together; the longer one loses its end first."""
    if second is None:
        first.truncate(room)
        return
    short, long = sorted((len(first), len(second)))
    if short + long <= room:
        return
    long = max(room - short, room - room // 2)
    short = room - long
    first_is_long = len(first) > len(second)
    first.truncate(long if first_is_long else short)
    second.truncate(short if first_is_long else long)


def cut_text(fast: FastTokenizer, text: str, max_tokens: int) -> str:
    """The text as far as its first so many tokens reach."""
    encoding = fast.encode_batch([text], add_special_tokens=False)[0]
    if len(encoding) <= max_tokens:
        return text
    return text[: encoding.offsets[max_tokens - 1][1]]
