"""Which query tokens of a batch attend as prompts do, and which as decode rows."""

from __future__ import annotations

import numpy as np
import pytest

from worker_svc.runner.attention.ways import FEW, TOGETHER, AttentionRows, Way, cut_rows


def cut(rows: list[tuple[int, int, int]], num_decode_rows: int) -> AttentionRows:
    """Of rows (positions known before, query tokens, prompt tokens of the request)."""
    starts = np.cumsum([0, *(new for _, new, _ in rows)]).astype(np.int32)
    positions = np.concatenate([np.arange(known, known + new) for known, new, _ in rows]).astype(np.int32)
    prompts = np.array([prompt for *_, prompt in rows[num_decode_rows:]], np.int32)
    return cut_rows(starts, positions, num_decode_rows, prompts)


def test_rows_stay_as_they_are_where_no_output_is_computed_again() -> None:
    """Y2."""
    made = cut([(9, 1, 3), (20, 5, 20), (0, 12, 12), (16, 1, 17), (0, 40, 90)], 2)
    assert made.rows is None
    assert made.query_starts.tolist() == [0, 1, 6, 18, 19, 59]
    assert made.ways.tolist() == [Way.DECODE] * 2 + [Way.PROMPT] * 3


@pytest.mark.parametrize("seed", range(40))
def test_each_token_goes_its_way(seed: int) -> None:
    """Y2: a prompt's goes that of prompts, wherever chunks are cut, and any other one that of decode rows."""
    random = np.random.default_rng(seed)
    num_decode, num_chunks = random.integers(0, 4, 2)
    rows = [(int(random.integers(5, 50)), int(random.integers(1, 6)), 5) for _ in range(num_decode)]
    rows += [tuple(random.integers((0, 1, 1), (60, 50, 60)).tolist()) for _ in range(num_chunks + 1)]
    made = cut(rows, int(num_decode))
    of_rows = np.arange(len(rows)) if made.rows is None else made.rows
    owner = np.repeat(np.arange(len(rows)), [new for _, new, _ in rows])
    assert made.query_starts[0] == 0 and made.query_starts[-1] == len(owner)
    for row, way, start, end in zip(
        of_rows, made.ways, made.query_starts[:-1], made.query_starts[1:], strict=True
    ):
        assert start < end and (owner[start:end] == row).all()
        known, new, num_prompt = rows[row]
        first = start - sum(length for _, length, _ in rows[:row])
        positions = known + np.arange(first, first + end - start)
        if row < num_decode:
            assert way == Way.DECODE and end - start == new
        elif way == Way.PROMPT:
            assert (positions < num_prompt).all()
        else:
            assert (positions >= num_prompt).all()
            num_outputs = min(new, known + new - num_prompt)
            assert (way == Way.AGAIN) == (num_outputs >= FEW)
            assert end - start <= (TOGETHER if way == Way.AGAIN else FEW - 1)
