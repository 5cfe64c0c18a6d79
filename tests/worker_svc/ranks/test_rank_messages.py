"""What rank 0 writes, the others read: batches with tables as differences, copies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from signalbox.protocol.block_groups import BlockGroup
from signalbox.protocol.enums import BlockGroupKind
from worker_svc.core.batch import Batch, BlockCopy, QuerySpan, RunnerInfo, StateCopy, StateKeep
from worker_svc.core.requests.sampling import SamplingTable
from worker_svc.ranks import calls
from worker_svc.ranks.calls import CallCodec
from worker_svc.ranks.tables import KnownTables

BLOCK_SIZE = 4
INFO = cast(
    RunnerInfo,
    SimpleNamespace(
        block_size=BLOCK_SIZE,
        max_model_len=64,
        num_slots=8,
        groups=(BlockGroup(BlockGroupKind.WINDOW, 8, 10, 64),),
    ),
)
COMPARED = ("slots", "query_starts", "token_ids", "positions", "seq_lens", "sample_index")


def make_batch(random: np.random.Generator, **changes: Any) -> Batch:
    slots = np.sort(random.choice(8, random.integers(1, 6), replace=False)).astype(np.int32)
    rows = len(slots)
    lengths = random.integers(1, 5, rows)
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    seq_lens = (lengths + random.integers(0, 50, rows)).astype(np.int32)
    width = int(-(-seq_lens.max() // BLOCK_SIZE))
    tables = [random.integers(0, 100, (rows, width)).astype(np.int32) for _ in range(2)]
    none = np.empty(0, np.int32)
    options: dict[str, Any] = {
        "step_id": 3,
        "slots": slots,
        "num_decode_rows": int(random.integers(0, rows + 1)),
        "query_starts": starts,
        "token_ids": random.integers(0, 500, starts[-1]).astype(np.int32),
        "positions": random.integers(0, 60, starts[-1]).astype(np.int32),
        "seq_lens": seq_lens,
        "block_tables": tables[0],
        "group_tables": [tables[1]],
        "sample_index": starts[1:] - 1,
        "sample_rows": none,
        "sample_output_positions": none,
        "sampling": SamplingTable(1),
        "tokens": none,
        "num_prompt_tokens": random.integers(1, 60, 8).astype(np.int32),
        "num_tokens": none,
    }
    return Batch(**(options | changes))


def test_batches_are_read_as_they_were_written() -> None:
    random = np.random.default_rng(1)
    writer, reader = CallCodec(INFO), CallCodec(INFO)
    for _ in range(200):
        batch = make_batch(
            random,
            state_reads=np.array([-1, 2], np.int32),
            state_keeps=[StateKeep(0, 3, -1)],
            scored=[QuerySpan(1, 2, 5)],
        )
        read = reader.read_batch(writer.write_batch(batch))
        for name in (*COMPARED, "state_reads"):
            assert np.array_equal(getattr(read, name), getattr(batch, name)), name
        assert (read.num_decode_rows, read.state_keeps, read.scored) == (
            batch.num_decode_rows,
            batch.state_keeps,
            batch.scored,
        )
        chunks = batch.slots[batch.num_decode_rows :]
        assert np.array_equal(read.num_prompt_tokens[chunks], batch.num_prompt_tokens[chunks])
        needs = -(-batch.seq_lens // BLOCK_SIZE)
        for ours, theirs in zip(
            (batch.block_tables, *batch.group_tables), (read.block_tables, *read.group_tables), strict=True
        ):
            for row, need in enumerate(needs):
                assert np.array_equal(ours[row, :need], theirs[row, :need])


def test_a_table_that_grows_by_a_block_is_said_in_one() -> None:
    known, heard = KnownTables(4, 100), KnownTables(4, 100)
    slots, tables = np.array([2], np.int32), np.arange(90, dtype=np.int32)[None] + 7
    first = known.tell(slots, tables[:, :80], np.array([80]))
    assert len(first.block_ids) == 80
    heard.hear(slots, first)
    second = known.tell(slots, tables[:, :81], np.array([81]))
    assert (second.firsts.tolist(), second.block_ids.tolist()) == ([80], [87])
    assert np.array_equal(heard.hear(slots, second), tables[:, :81])
    third = known.tell(slots, tables[:, :81], np.array([81]))
    assert third.counts.tolist() == [0] and not len(third.block_ids)


def test_copies_are_read_as_they_were_written() -> None:
    blocks = [BlockCopy(1, False, 2, True), BlockCopy(3, True, 4, False, 2)]
    assert calls.read_block_copies(calls.write_block_copies(blocks)) == blocks
    states = [StateCopy(1, 0, 5, False), StateCopy(2, 1, 6, True)]
    assert calls.read_state_copies(calls.write_state_copies(states)) == states
    with pytest.raises(ValueError, match="reshape"):
        calls.read_block_copies(b"\0" * 12)
