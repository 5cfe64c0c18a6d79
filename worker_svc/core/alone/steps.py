"""The steps of a worker without a scheduler, authored by itself (docs/liveness.md, A1 to A3).

It runs its decode rows and the prefills that have all their blocks, as usual, or as far as they have those of all
groups; a row that needs a block takes a lent
one, or rests. Nothing new is started, nothing is resumed, copied or freed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from signalbox.protocol.block_groups import SPINE
from worker_svc.core.alone.loan import Loan
from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.core.run_ahead import certainly_ended
from worker_svc.core.step import I32, I64, StepDelta

MOST_CHUNK_TOKENS = 512
"""Most prefill tokens per step: nobody is there to say how much prefill the decode rows can bear beside them."""


@dataclass
class _Grants:
    """Blocks that rows get with a step."""

    of: list[tuple[list[int], list[int]]]
    """Slots and blocks, of each group."""

    def give(self, slot: int, blocks: list[list[int]]) -> None:
        for (slots, granted), mine in zip(self.of, blocks, strict=True):
            slots.extend([slot] * len(mine))
            granted.extend(mine)

    def columns(self) -> list[tuple[I64, I32]]:
        return [(np.array(slots, np.int64), np.array(blocks, np.int32)) for slots, blocks in self.of]


def author_step(
    table: RequestTable, settling: list[int], loan: Loan, most_tokens: int, *, step_id: int, epoch: int
) -> StepDelta | None:
    """The next step; None: nothing can run. `settling` are slots that decode from this step on, `most_tokens` what the
    runner takes."""
    rows, is_turn = _decode_rows(table, settling, step_id)
    rows_of_others, rows = rows[~is_turn], rows[is_turn]
    positions = table.num_computed[rows] + table.num_in_flight[rows]
    grants = _Grants([([], []) for _ in range(1 + len(table.groups))])
    ready = _grant(table, rows, positions, loan, grants)
    num_queries = int((1 + table.max_drafts[rows[ready]]).sum())
    chunks = _chunks(table, min(MOST_CHUNK_TOKENS, most_tokens - num_queries))
    if not ready.any() and not chunks and not _could_run(table, rows_of_others, loan):
        return None
    (slots, blocks), *others = grants.columns()
    return StepDelta(
        step_id=step_id,
        scheduler_epoch=epoch,
        grant_slots=slots,
        grant_blocks=blocks,
        group_grants=[(number, *columns) for number, columns in enumerate(others, SPINE + 1)],
        chunks=chunks,
        is_own=True,
    )


def _decode_rows(table: RequestTable, settling: list[int], step_id: int) -> tuple[I64, NDArray[np.bool_]]:
    """Slots that make a token in the next step of their lane if they have the block for it, and `[R]` whose turn it
    is."""
    runs = table.runs.copy()
    runs[settling] = True
    rows = np.flatnonzero(runs & ~table.paused)
    status, positions = table.status[rows], table.num_computed[rows] + table.num_in_flight[rows]
    is_first = (status == SlotStatus.PREFILL) & (positions == table.num_tokens[rows])
    decodes = is_first | (status == SlotStatus.DECODE)
    live: I64 = rows[decodes & ~certainly_ended(positions, table.limit[rows])]
    return live, table.lane[live] == step_id % table.num_lanes


def _could_run(table: RequestTable, rows: I64, loan: Loan) -> bool:
    """Whether one of these rows of other lanes has its block, or could have it: the steps go on to its turn (LA4)."""
    return any(loan.has(missing) for missing in _missing(table, rows).T.tolist())


def _grant(table: RequestTable, rows: I64, positions: I64, loan: Loan, grants: _Grants) -> NDArray[np.bool_]:
    """[R] which rows can run, those that get a block included. Drafts get what is left when all rows have theirs."""
    size = table.block_size
    held, missing = _held(table, rows), _missing(table, rows)
    # The last token that a request can have is never read.
    last = np.minimum(positions + table.max_drafts[rows], table.limit[rows] - 2)
    wished = last // size + 1 - held - np.maximum(missing, 0)
    ready: NDArray[np.bool_] = np.all(missing <= 0, axis=0)
    for row in np.flatnonzero(~ready).tolist():
        blocks = loan.take(missing[:, row].tolist())
        grants.give(int(rows[row]), blocks)
        ready[row] = any(blocks)
    for row in np.flatnonzero(ready & (wished > 0).any(axis=0)).tolist():
        grants.give(int(rows[row]), loan.take(wished[:, row].tolist()))
    return ready


def _held(table: RequestTable, rows: I64) -> NDArray[np.int32]:
    return np.array([table.num_blocks[rows], *(group.ends[rows] for group in table.groups)])


def _missing(table: RequestTable, rows: I64) -> NDArray[np.int32]:
    """`[groups, R]` blocks that each lacks for its next token; none, or less, where it has some."""
    positions = table.num_computed[rows] + table.num_in_flight[rows]
    missing: NDArray[np.int32] = positions // table.block_size + 1 - _held(table, rows)
    return missing


def _chunks(table: RequestTable, budget: int) -> list[tuple[int, int, int]]:
    """(slot, start, length) of prefills that go on, the shortest rest first, `budget` tokens in all."""
    slots = np.flatnonzero((table.status == SlotStatus.PREFILL) & ~table.paused)
    if not len(slots):
        return []
    starts = table.num_computed[slots] + table.num_in_flight[slots]
    rests = table.prefill_target[slots] - starts
    has_blocks = table.num_blocks[slots] * table.block_size >= table.prefill_target[slots]
    rooms = table.num_covered(slots) * table.block_size - starts
    chunks = []
    for index in np.argsort(rests, kind="stable").tolist():
        length = min(int(rests[index]), budget, int(rooms[index]))
        if length > 0 and has_blocks[index]:
            chunks.append((int(slots[index]), int(starts[index]), length))
            budget -= length
    return chunks
