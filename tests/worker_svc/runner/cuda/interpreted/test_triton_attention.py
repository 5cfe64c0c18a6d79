"""The Triton attention kernel against float64, and against itself in other batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from triton.runtime.interpreter import GridExecutor

from signalbox.protocol.block_groups import BlockGroup
from signalbox.protocol.enums import BlockGroupKind
from tests.pairs import every_other
from tests.worker_svc.runner.cuda.interpreted.attention_case import CPU, Case, Heads
from worker_svc.runner.attention.torch_attention import Scores
from worker_svc.runner.triton.batch import DecodeBatch, chunk_items, decode_items, make_decode_items

ROWS = [(0, 1), (63, 1), (64, 1), (140, 3), (0, 5), (37, 30), (100, 1)]
"""Decode rows at and around the end of a split, one with drafts; then chunks, one of a single token."""
NUM_DECODE = 4
SHAPES = [
    Heads(4, 4, 16, 16),
    Heads(8, 2, 64, 96),
    Heads(7, 1, 96, 64),
    Heads(14, 2, 64, 16),
    Heads(4, 1, 128, 96),
    Heads(2, 2, 96, 128),
    Heads(12, 1, 80, 64, values_in_keys=True),
    Heads(32, 1, 72, 40, values_in_keys=True),
]
TOLERANCES = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}


@pytest.mark.parametrize(("heads", "window"), every_other(SHAPES, [None, 20]), ids=str)
def test_shapes(heads: Heads, window: int | None) -> None:
    case = Case(ROWS, NUM_DECODE, heads)
    assert case.error(Scores(heads.dim**-0.5, sliding_window=window)) < TOLERANCES[torch.float32]


@pytest.mark.parametrize("rows", [ROWS[:NUM_DECODE], ROWS], ids=["decode", "mixed"])
def test_planted_a_grid_that_is_one_program_too_small(
    rows: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of the program that is missing are what was in memory: not a number here."""
    case = Case(rows, NUM_DECODE, SHAPES[0])
    assert case.error(Scores(0.25)) < TOLERANCES[torch.float32]
    init = GridExecutor.__init__

    def one_less(executor: GridExecutor, fn: Any, names: Any, grid: Any, *hooks: Any) -> None:
        init(executor, fn, names, (grid[0] - 1, *grid[1:]), *hooks)

    monkeypatch.setattr(GridExecutor, "__init__", one_less)
    assert not case.error(Scores(0.25)) < TOLERANCES[torch.float32]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    case = Case(ROWS, NUM_DECODE, Heads(4, 2, 64, 32), dtype=dtype)
    assert case.error(Scores(0.125, sliding_window=70)) < TOLERANCES[dtype]


@pytest.mark.parametrize("block_size", [1, 4, 32, 128])
def test_block_sizes(block_size: int) -> None:
    case = Case(ROWS, NUM_DECODE, Heads(4, 2, 16, 32), block_size=block_size, seed=block_size)
    assert case.error(Scores(0.25)) < TOLERANCES[torch.float32]


@pytest.mark.sampled
@pytest.mark.parametrize("window", [None, 1, 16, 100])
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("with_sinks", [False, True])
def test_window_softcap_and_sinks(window: int | None, softcap: float | None, with_sinks: bool) -> None:
    """A window may leave out whole splits, and its end lie anywhere in one."""
    case = Case(ROWS, NUM_DECODE, Heads(4, 2, 16, 16))
    sinks = torch.tensor([0.5, -1.0, 30.0, -30.0]) if with_sinks else None
    scores = Scores(0.25, sliding_window=window, softcap=softcap, sinks=sinks)
    assert case.error(scores) < TOLERANCES[torch.float32]


@pytest.mark.parametrize("window", [None, 40])
def test_a_row_does_not_depend_on_its_batch(window: int | None) -> None:
    """Bit for bit: alone, where a short row has no other split to be joined with, and beside long ones and chunks."""
    case = Case(ROWS, NUM_DECODE, Heads(4, 2, 32, 16))
    scores = Scores(0.2, sliding_window=window, sinks=torch.randn(4))
    together = case.attend(scores).split([new for _, new in ROWS])
    for i in range(len(ROWS)):
        assert torch.equal(case.attend(scores, [i]), together[i]), f"row {i}"


def test_decode_token_does_not_depend_on_drafts() -> None:
    case = Case([(77, 6)], 1, Heads(7, 1, 16, 16), split=32)
    scores = Scores(0.2, sliding_window=50)
    together = case.attend(scores)
    for t in range(6):
        alone = Case([(77, 6)], 1, Heads(7, 1, 16, 16), split=32)
        alone.rows, alone.queries = [(77 + t, 1)], [case.queries[0][t : t + 1]]
        assert torch.equal(alone.attend(scores)[0], together[t])


def test_a_chunk_is_the_same_in_parts() -> None:
    """Bit for bit, wherever a prompt is cut."""
    case = Case([(0, 90)], 0, Heads(4, 2, 16, 16))
    scores = Scores(0.2, sliding_window=33)
    whole, query = case.attend(scores), case.queries[0]
    for start, end in [(0, 1), (1, 50), (50, 90)]:
        case.rows, case.queries = [(start, end - start)], [query[start:end]]
        assert torch.equal(case.attend(scores), whole[start:end])


@pytest.mark.parametrize(
    ("heads", "chunk"),
    every_other([Heads(4, 2, 16, 32), Heads(12, 1, 80, 64, values_in_keys=True)], [16, 48, 128]),
    ids=str,
)
def test_chunks_of_positions(heads: Heads, chunk: int) -> None:
    """Llama 4's: tiles may hold queries of several, and a decode row's chunk begin in any split."""
    case = Case(ROWS, NUM_DECODE, heads)
    scores = Scores(heads.dim**-0.5, chunk=chunk)
    assert case.error(scores) < TOLERANCES[torch.float32]
    together = case.attend(scores).split([new for _, new in ROWS])
    for i in range(len(ROWS)):
        assert torch.equal(case.attend(scores, [i]), together[i]), f"row {i}"


@pytest.mark.parametrize(
    "scores", [Scores(0.2, sliding_window=20), Scores(0.2, chunk=48)], ids=["window", "chunk"]
)
def test_what_lies_ahead_of_a_window_is_not_read(scores: Scores) -> None:
    """WB1: tables have the ids of others' blocks there, or of none: a read gives NaN, or a fault."""
    case = Case(ROWS, NUM_DECODE, Heads(4, 2, 16, 16))
    expected = case.attend(scores)
    seen = BlockGroup(
        BlockGroupKind.WINDOW if scores.chunk is None else BlockGroupKind.CHUNK,
        scores.chunk or scores.sliding_window or 0,
        num_blocks=1,
    )
    firsts = [seen.first_seen(known) // 16 for known, _ in ROWS]
    assert max(firsts) > 4
    for table, first in zip(case.block_tables, firsts, strict=True):
        case.layer.keys[table[:first]] = case.layer.values[table[:first]] = torch.nan
    assert torch.equal(case.attend(scores), expected)
    for table, first in zip(case.block_tables, firsts, strict=True):
        table[:first] = 1 << 30
    assert torch.equal(case.attend(scores), expected)


@pytest.mark.parametrize("window", [None, 30])
def test_decode_rows_known_to_the_device_only(window: int | None) -> None:
    """As in a CUDA graph: splits for the longest context there can be, rows that fill up, tables in a state."""
    case = Case([(0, 1), (63, 1), (64, 1), (140, 1)], 4, Heads(4, 2, 32, 16))
    scores = Scores(0.2, sliding_window=window)
    tables = np.concatenate([case.block_tables, case.block_tables[:1]])
    batch = DecodeBatch(
        case.cache,
        torch.tensor([0, 63, 64, 140, 0], dtype=torch.int32),
        torch.from_numpy(tables)[None],
        items=make_decode_items(5, 4, CPU),
        num_splits=4,
        split=64,
    )
    filled = torch.cat([*case.queries, torch.randn(1, 4, 32)])
    assert torch.equal(batch.attend_at_once(filled, case.layer, scores)[:4], case.attend(scores))
    assert batch.block_ids.tolist() == [int(tables[i, p // 16]) for i, p in enumerate((0, 63, 64, 140, 0))]
    assert batch.offsets.tolist() == [0, 15, 0, 12, 0]


def test_queries_with_strides() -> None:
    """As transformers hands them over: heads apart, and as a part of a joined projection."""
    case = Case(ROWS, NUM_DECODE, Heads(4, 2, 16, 16))
    query, scores = torch.cat(case.queries), Scores(0.25)
    expected = case.attend(scores)
    apart = query.transpose(0, 1).contiguous().transpose(0, 1)
    joined = torch.cat([query, torch.full((len(query), 4, 16), torch.nan)], dim=1)[:, :4]
    for view in (apart, joined):
        assert not view.is_contiguous()
        assert torch.equal(case.batch().attend_at_once(view, case.layer, scores), expected)


def test_items_cover_each_query_once() -> None:
    random = np.random.default_rng(1)
    lengths, known = random.integers(1, 60, 20), random.integers(0, 300, 20)
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    positions = np.concatenate([np.arange(a, a + n) for a, n in zip(known, lengths, strict=True)]).astype(
        np.int32
    )
    chunks = chunk_items(starts, positions, 8, queries=16)
    decodes = decode_items(starts[:9], positions, queries=2, split=64)
    covered = [
        t for _, first, count, split in (*chunks, *decodes) if split == 0 for t in range(first, first + count)
    ]
    assert sorted(covered) == list(range(starts[-1]))
    for row, first, count, _ in (*chunks, *decodes):
        assert starts[row] <= first < first + count <= starts[row + 1]
    ends = positions[chunks[:, 1]] + chunks[:, 2]
    assert (np.diff(ends) <= 0).all()
    for row, first, count, split in decodes:
        same = decodes[(decodes[:, 0] == row) & (decodes[:, 1] == first)]
        assert same[:, 3].tolist() == list(range((positions[first] + count - 1) // 64 + 1))
        assert split < len(same)
