"""How the query tokens of a row attend. A CPU's kernels have one routine for prompts and one for decoding, which round
otherwise: a token goes the same way whenever it is computed, so that its KV has the same bits."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

I32 = NDArray[np.int32]
Ways = NDArray[np.uint8]
TOGETHER = 4
"""Query tokens of a row that goes `Way.AGAIN`: its partial results lie in memory at once, by split of its context."""
FEW = 16
"""So many tokens are cut into such rows; fewer are one row, whose context several threads share."""


class Way(IntEnum):
    """The way of a row; the numbers are those of attention.h."""

    DECODE = 0
    """One by one, for the same bits alone and behind others of the row."""
    PROMPT = 1
    """Together, for the same bits wherever the prompt is cut."""
    AGAIN = 2
    """As `DECODE`, for one of many rows of one request."""


class AttentionRows(NamedTuple):
    """The query tokens of a batch by how they attend."""

    query_starts: I32
    """[A + 1] number of each row's first query token; last, T."""
    rows: NDArray[np.intp] | None
    """[A] row of the batch; None: they are the same rows."""
    ways: Ways
    """[A] `Way`."""


def whole_rows(num_rows: int, num_decode_rows: int) -> Ways:
    """[R] ways of decode rows and, behind them, of chunks of prompts."""
    ways = np.full(num_rows, Way.PROMPT, np.uint8)
    ways[:num_decode_rows] = Way.DECODE
    return ways


def cut_rows(
    query_starts: I32, positions: I32, num_decode_rows: int, num_prompt_tokens: I32
) -> AttentionRows:
    """Cuts chunks `[R - num_decode_rows]` of requests of so many prompt tokens into a part that is prompt and rows that
    were decoded once, and are computed again."""
    num_rows = len(query_starts) - 1
    ways = whole_rows(num_rows, num_decode_rows)
    starts, ends = query_starts[num_decode_rows:-1], query_starts[num_decode_rows + 1 :]
    # Where in the batch the prompt ends, if it ends in the chunk.
    outputs = np.clip(starts + num_prompt_tokens - positions[starts], starts, ends)
    if (outputs == ends).all():
        return AttentionRows(query_starts, None, ways)
    pieces = [
        (row, *piece)
        for row, (start, output, end) in enumerate(
            zip(starts.tolist(), outputs.tolist(), ends.tolist(), strict=True), num_decode_rows
        )
        for piece in _pieces(start, output, end)
    ]
    rows, firsts, their_ways = (np.array(column) for column in zip(*pieces, strict=True))
    return AttentionRows(
        np.concatenate((query_starts[:num_decode_rows], firsts, query_starts[-1:])).astype(np.int32),
        np.concatenate((np.arange(num_decode_rows), rows)),
        np.concatenate((ways[:num_decode_rows], their_ways)).astype(np.uint8),
    )


def _pieces(start: int, output: int, end: int) -> list[tuple[int, Way]]:
    """First query token and way of each part of a chunk `[start, end)` whose outputs begin at `output`."""
    prompt = [(start, Way.PROMPT)] if start < output else []
    if end - output < FEW:
        return prompt + ([(output, Way.DECODE)] if output < end else [])
    return prompt + [(first, Way.AGAIN) for first in range(output, end, TOGETHER)]
