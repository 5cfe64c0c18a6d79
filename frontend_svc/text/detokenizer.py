"""Tokens of one request to text, piece by piece, without ever decoding the whole output again.

`"".join(pieces)` equals decoding all output tokens at once. An incomplete UTF-8 character is held back until
it is complete or cannot become so.
"""

from __future__ import annotations

import codecs
from collections.abc import Container, Sequence
from functools import partial
from typing import Protocol

from frontend_svc.text.tokenizer import TokenBytes, Tokenizer

REPLACEMENT = "\ufffd"
MAX_PENDING_TOKENS = 32
"""An incomplete character is three bytes at most, but some decoders judge longer runs as a whole."""
MAX_CONTEXT_TOKENS = 8


class Detokenizer(Protocol):
    """What both ways of decoding offer."""

    def push(self, token_ids: Sequence[int]) -> str:
        """Text that became certain with these tokens."""

    def flush(self) -> str:
        """What was held back, when no more tokens come."""

    def break_off(self) -> str:
        """What was held back, when what follows belongs to other text; it may go on after that."""


def make_detokenizer(tokenizer: Tokenizer, *, with_special: bool = False) -> Detokenizer:
    """The fast one where bytes of tokens are independent of each other, else the general one. `with_special`: special
    tokens are text."""
    table = tokenizer.all_token_bytes if with_special else tokenizer.token_bytes
    if table is not None:
        return ByteDetokenizer(table)
    return WindowDetokenizer(tokenizer, with_special=with_special)


class ByteDetokenizer:
    """The detokenizer of byte-level tokenizers: looks the bytes up and decodes them as UTF-8."""

    def __init__(self, token_bytes: TokenBytes) -> None:
        self._bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_ids: Sequence[int]) -> str:
        """Text that became certain with these tokens."""
        table = self._bytes
        if len(token_ids) == 1:
            return self._decoder.decode(table[token_ids[0]])
        return self._decoder.decode(b"".join([table[token_id] for token_id in token_ids]))

    def flush(self) -> str:
        """What was held back, when no more tokens come."""
        return self._decoder.decode(b"", True)

    def break_off(self) -> str:
        """What was held back, when what follows belongs to other text."""
        text = self._decoder.decode(b"", True)
        self._decoder.reset()
        return text


class WindowDetokenizer:
    """The detokenizer of all other tokenizers: decodes a short window of trailing tokens and sends what is new in its
    text.

        The window is context, then pending tokens. The context's text was sent already; it is there because
    decoders treat the beginning of a text differently (a leading space is stripped).
    """

    def __init__(self, tokenizer: Tokenizer, *, with_special: bool = False) -> None:
        self._decode = partial(tokenizer.decode, with_special=with_special)
        self._skipped: Container[int] = () if with_special else tokenizer.special_ids
        self._window: list[int] = []
        self._num_context = 0
        self._sent = ""
        """The part of the window's text that was sent."""

    def push(self, token_ids: Sequence[int]) -> str:
        """Text that became certain with these tokens."""
        pieces = []
        for token_id in token_ids:
            if token_id in self._skipped:
                continue  # as the decoder would; it never sees them
            self._window.append(token_id)
            if piece := self._advance():
                pieces.append(piece)
        return "".join(pieces)

    def flush(self) -> str:
        """What was held back, when no more tokens come."""
        text = self._decode(self._window)[len(self._sent) :]
        self._sent += text
        return text

    def break_off(self) -> str:
        """What was held back, when what follows belongs to other text: half a character is not finished there."""
        text = self.flush()
        if text:
            self._window, self._num_context, self._sent = [], 0, ""
        return text

    def _advance(self) -> str:
        text = self._decode(self._window)
        if text.endswith(REPLACEMENT) and len(self._window) - self._num_context < MAX_PENDING_TOKENS:
            return ""
        piece = text[len(self._sent) :]
        self._sent = text
        self._move_window()
        return piece

    def _move_window(self) -> None:
        """Everything was sent: what was pending becomes the context of what follows."""
        context = self._window[self._num_context :]
        sent = self._decode(context)
        if not sent and len(self._window) < MAX_CONTEXT_TOKENS:
            # What has no text by itself is no context: the next token would lose its leading space.
            context, sent = self._window, self._sent
        self._window, self._num_context, self._sent = context, len(context), sent
