"""The text of one request: output tokens in, certain text and the stop string out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from frontend_svc.text.certain import Certain
from frontend_svc.text.detokenizer import make_detokenizer
from frontend_svc.text.stop_strings import Found, StopStrings
from frontend_svc.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TextOptions:
    """What of a request's tokens is text."""

    keep_stop: bool = False
    """What ended the output, a stop string or a token, stays at the end of the text."""
    with_special: bool = False
    """Special tokens are text."""
    end_tokens: frozenset[int] = frozenset()
    """Tokens that end the output: each is the last one."""

    @property
    def unread_tokens(self) -> frozenset[int]:
        """Tokens at the end that are no text."""
        return frozenset() if self.keep_stop else self.end_tokens


PLAIN = TextOptions()


class OutputStream(Protocol):
    """Makes of one request's tokens what its client is told."""

    def push(self, token_ids: Sequence[int]) -> Certain:
        """What became certain with these tokens, up to a stop string that one of them completed."""

    def flush(self, *, is_whole: bool = False) -> Certain:
        """What was held back, when no more tokens come, and the stop string that it completes. is_whole: the model
        ended the output itself; nothing was cut off."""


class TextStream:
    """Detokenizes, and looks for stop strings if there are any."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str], options: TextOptions = PLAIN) -> None:
        self._keep_stop = options.keep_stop
        self._end_tokens = options.unread_tokens
        self._detokenizer = make_detokenizer(tokenizer, with_special=options.with_special)
        self._stops = StopStrings(tuple(stops)) if stops else None

    def push(self, token_ids: Sequence[int]) -> Certain:
        """The text that became certain, and the stop string that one of these tokens completed."""
        if token_ids and token_ids[-1] in self._end_tokens:
            token_ids = token_ids[:-1]
        if self._stops is None:
            return Certain(self._detokenizer.push(token_ids))
        pieces = []
        for count, token_id in enumerate(token_ids, 1):
            text = self._detokenizer.push((token_id,))
            if not text:
                continue
            certain, stop = self._stops.push(text)
            pieces.append(certain)
            if stop is not None:
                pieces.append(stop if self._keep_stop else "")
                return Certain("".join(pieces), Found(stop, count))
        return Certain("".join(pieces))

    def flush(self, *, is_whole: bool = False) -> Certain:
        """What was held back, when no more tokens come, and the stop string that it completes."""
        text = self._detokenizer.flush()
        if self._stops is None:
            return Certain(text)
        certain, stop = self._stops.push(text)
        if stop is not None:
            return Certain(certain + (stop if self._keep_stop else ""), Found(stop))
        return Certain(certain + self._stops.flush())
