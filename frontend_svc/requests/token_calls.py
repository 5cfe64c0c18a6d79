"""Text to tokens and back, for clients that ask for nothing else: no more of it than a prompt may have (AK7)."""

from __future__ import annotations

from collections.abc import Sequence

from frontend_svc.config import Limits
from frontend_svc.models import Model
from frontend_svc.requests.validation import check_num_chars, check_num_tokens, check_token_ids
from frontend_svc.text.tokenizer import Tokenizer


class TokenCalls:
    """What such calls of all faces share."""

    def __init__(self, tokenizer: Tokenizer, model: Model, limits: Limits) -> None:
        """`model` is the one that the client names."""
        self.model = model
        self._tokenizer, self._limits = tokenizer, limits

    async def tokenize(self, text: str, field: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of `text`. Raises ContextLengthError or RequestTooLargeError, which name `field`, for more than a
        prompt may have: ahead of the work where the tokenizer knows how many there are at least."""
        check_num_chars(len(text), self._tokenizer.longest_token, self.model, self._limits, field)
        encoding = await self._tokenizer.encoding_of(text, add_special_tokens=add_special_tokens)
        check_num_tokens(len(encoding), self.model, self._limits, field)
        token_ids: list[int] = encoding.ids
        return token_ids

    async def detokenize(self, token_ids: Sequence[int], field: str) -> str:
        """Text of `token_ids`. Raises as `tokenize` does, and InvalidRequestError for an id that is none."""
        check_num_tokens(len(token_ids), self.model, self._limits, field)
        known = list(token_ids)
        check_token_ids(known, self.model.vocab_size, field)
        return await self._tokenizer.text_of(known)
