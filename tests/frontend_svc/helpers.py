"""Small things that several tests need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from frontend_svc.tokenizer import Tokenizer


async def until(condition: Callable[[], object], timeout_s: float = 5) -> None:
    """Returns when `condition` holds; fails when it does not in time."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)


def character_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """One token per character of ASCII text, however the tokenizer would join them."""
    ids = [tokenizer.fast.token_to_id(character) for character in text]
    assert None not in ids
    return [token for token in ids if token is not None]
