"""Makes token sequences of the strings that an output must not contain."""

from __future__ import annotations

from collections.abc import Sequence

from frontend_svc.text.tokenizer import Tokenizer


async def tokenize_bad_words(words: Sequence[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """The tokens of each word as it reads at the start of a text and, as vLLM has it, behind a space.

    A spelling with a space that ends in the tokens of the one without adds nothing and is left out.
    """
    sequences: list[tuple[int, ...]] = []
    for word in words:
        bare = tuple(await tokenizer.encode(word.lstrip(), add_special_tokens=False))
        spaced = tuple(await tokenizer.encode(" " + word.lstrip(), add_special_tokens=False))
        sequences.append(bare)
        if spaced[-len(bare) :] != bare:
            sequences.append(spaced)
    return tuple(sequences)
