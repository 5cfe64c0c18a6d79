"""The prompt of a pooling request: its tokens, cut as the client wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from frontend_svc.models import Model
from frontend_svc.pooling.parts import Parts, tokenize_parts
from frontend_svc.requests.request import ClientRequest
from frontend_svc.text.tokenizer import LONG_TEXT_CHARS, Tokenizer
from signalbox.errors import InvalidRequestError


async def tokenize_pooled(
    request: ClientRequest, tokenizer: Tokenizer | None, model: Model
) -> tuple[ClientRequest, Sequence[int]]:
    """The request, which then tells where the second part of a pair begins, and its tokens.

    Raises InvalidRequestError for a wrong number of tokens to keep.
    """
    most = max_tokens(request, model)
    if not isinstance(request.prompt, str):
        return request, request.prompt[:most]
    assert tokenizer is not None and request.pooling is not None
    parts = Parts(request.prompt, request.pair, request.add_special_tokens, most, request.max_pair_tokens)
    if parts.num_chars < LONG_TEXT_CHARS:
        tokens = tokenize_parts(tokenizer.fast, parts)
    else:
        tokens = await asyncio.to_thread(tokenize_parts, tokenizer.fast, parts)
    pooling = replace(request.pooling, num_first_tokens=tokens.num_first_tokens)
    return replace(request, pooling=pooling), tokens.token_ids


def max_tokens(request: ClientRequest, model: Model) -> int | None:
    """Tokens to keep of the prompt; None: all."""
    most = request.truncate_prompt_tokens
    if most == -1:
        return model.max_tokens
    if most is not None and not 1 <= most <= model.max_tokens:
        raise InvalidRequestError(
            f"truncate_prompt_tokens must be -1, or from 1 to {model.max_tokens}, got {most}",
            field="truncate_prompt_tokens",
        )
    return most
