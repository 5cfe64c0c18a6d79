"""Text to tokens and back, for clients that ask for nothing else (AK7)."""

from __future__ import annotations

from collections.abc import Sequence

from frontend_svc.config import Limits
from frontend_svc.models import Model
from frontend_svc.requests.validation import check_most_tokens, check_token_ids, least_tokens
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.errors import RequestTooLargeError

MOST_TOKENS = 1 << 20
"""Tokens that can be asked about at once: more than a prompt may have, as clients ask to see how much too long a text
is."""


class TokenCalls:
    """What such calls of all faces share."""

    def __init__(self, tokenizer: Tokenizer, model: Model, limits: Limits) -> None:
        """`model` is the one that the client names."""
        self.model = model
        self._tokenizer, self._limits = tokenizer, limits

    async def tokenize(self, text: str, field: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of `text`. Raises RequestTooLargeError, which names `field`, for too many: ahead of the work where
        the tokenizer knows how many there are at least."""
        if (longest := self._tokenizer.longest_token) is not None:
            self._check(least_tokens(text, longest), field)
        encoding = await self._tokenizer.encoding_of(text, add_special_tokens=add_special_tokens)
        self._check(len(encoding), field)
        token_ids: list[int] = encoding.ids
        return token_ids

    async def detokenize(self, token_ids: Sequence[int], field: str) -> str:
        """Text of `token_ids`. Raises as `tokenize` does, and InvalidRequestError for an id that is none."""
        self._check(len(token_ids), field)
        known = list(token_ids)
        check_token_ids(known, self.model.vocab_size, field)
        return await self._tokenizer.text_of(known)

    def _check(self, num_tokens: int, field: str) -> None:
        check_most_tokens(num_tokens, self._limits, field)
        if num_tokens > (most := max(self.model.max_tokens, MOST_TOKENS)):
            raise RequestTooLargeError(
                f"{field} has {num_tokens} tokens at least; {most} can be asked about at once", field=field
            )
