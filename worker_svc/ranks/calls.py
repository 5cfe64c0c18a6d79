"""Calls on a runner as messages: rank 0 writes them, the others read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from signalbox.v1 import ranks_pb2
from worker_svc.core.batch import Batch, BlockCopy, QuerySpan, RunnerInfo, StateCopy, StateKeep
from worker_svc.core.requests.sampling import SamplingTable
from worker_svc.ranks.tables import KnownTables, TableChanges

I32 = NDArray[np.int32]
COLUMNS = ("slots", "query_starts", "token_ids", "positions", "seq_lens", "sample_index")
STATES = ("state_reads", "state_writes", "state_tails")


class CallCodec:
    """Writes and reads calls; both sides know the block tables of the batches before."""

    def __init__(self, info: RunnerInfo) -> None:
        self._block_size = info.block_size
        most = -(-info.max_model_len // info.block_size) + 1
        self._tables = [KnownTables(info.num_slots, most) for _ in range(1 + len(info.groups))]
        self._sampling = SamplingTable(1)
        self._num_prompt_tokens = np.zeros(info.num_slots, np.int32)

    def write_batch(self, batch: Batch) -> ranks_pb2.RankBatch:
        """What the other ranks need of it."""
        message = ranks_pb2.RankBatch(num_decode_rows=batch.num_decode_rows)
        message.num_prompt_tokens = _raw(batch.num_prompt_tokens[batch.slots[batch.num_decode_rows :]])
        for name in (*COLUMNS, *STATES):
            setattr(message, name, _raw(getattr(batch, name)))
        message.state_keeps = _raw(np.array(batch.state_keeps))
        message.scored, message.pooled = _raw(np.array(batch.scored)), _raw(np.array(batch.pooled))
        needs = -(-batch.seq_lens // self._block_size)
        for known, tables in zip(self._tables, (batch.block_tables, *batch.group_tables), strict=False):
            changes = known.tell(batch.slots, tables, needs)
            message.tables.add(
                width=changes.width,
                firsts=_raw(changes.firsts),
                counts=_raw(changes.counts),
                block_ids=_raw(changes.block_ids),
            )
        return message

    def read_batch(self, message: ranks_pb2.RankBatch) -> Batch:
        """The batch as a rank runs it that samples nothing."""
        columns: dict[str, Any] = {name: _array(getattr(message, name)) for name in (*COLUMNS, *STATES)}
        spine, *others = (
            known.hear(columns["slots"], _changes(said))
            for known, said in zip(self._tables, message.tables, strict=False)
        )
        chunks = columns["slots"][message.num_decode_rows :]
        self._num_prompt_tokens[chunks] = _array(message.num_prompt_tokens)
        none = np.empty(0, np.int32)
        return Batch(
            step_id=0,
            num_decode_rows=message.num_decode_rows,
            block_tables=spine,
            group_tables=others,
            sample_rows=none,
            sample_output_positions=none,
            sampling=self._sampling,
            tokens=none,
            num_prompt_tokens=self._num_prompt_tokens,
            num_tokens=none,
            state_keeps=[StateKeep(*row) for row in _rows(message.state_keeps, 3)],
            scored=[QuerySpan(*row) for row in _rows(message.scored, 3)],
            pooled=[QuerySpan(*row) for row in _rows(message.pooled, 3)],
            **columns,
        )


def write_block_copies(copies: Sequence[BlockCopy]) -> bytes:
    """Copies of blocks as a column."""
    return _raw(np.array(copies))


def read_block_copies(raw: bytes) -> list[BlockCopy]:
    """What `write_block_copies` wrote."""
    return [BlockCopy(a, bool(b), c, bool(d), group) for a, b, c, d, group in _rows(raw, 5)]


def write_state_copies(copies: Sequence[StateCopy]) -> bytes:
    """Copies of recurrent states as a column."""
    return _raw(np.array(copies))


def read_state_copies(raw: bytes) -> list[StateCopy]:
    """What `write_state_copies` wrote."""
    return [StateCopy(slot, version, place, bool(back)) for slot, version, place, back in _rows(raw, 4)]


def _changes(said: ranks_pb2.RankTables) -> TableChanges:
    return TableChanges(said.width, _array(said.firsts), _array(said.counts), _array(said.block_ids))


def _raw(values: NDArray[Any]) -> bytes:
    return values.astype("<i4").tobytes()


def _array(raw: bytes) -> I32:
    return np.frombuffer(raw, "<i4").astype(np.int32)


def _rows(raw: bytes, width: int) -> list[list[int]]:
    rows: list[list[int]] = _array(raw).reshape(-1, width).tolist()
    return rows
