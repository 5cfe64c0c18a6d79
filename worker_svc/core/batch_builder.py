"""Makes a step's batch of the rows that are to run."""

from __future__ import annotations

import numpy as np

from signalbox.protocol.enums import NotRunReason
from worker_svc.core.batch import Batch
from worker_svc.core.requests.prompt_reading import spans_to_read
from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.core.run_ahead import certainly_ended, is_granted
from worker_svc.core.step import I32, I64, SlotStart, StepReport


def ready_rows(table: RequestTable, rows: I64, report: StepReport, *, is_skipped: bool = False) -> I64:
    """The decode rows among `rows` that can run; the others are reported as exceptions. None of a step that
    `is_skipped` runs."""
    if is_skipped:
        report.exceptions += [(slot, 0) for slot in rows.tolist()]
        return rows[:0]
    status, positions = table.status[rows], table.num_computed[rows] + table.num_in_flight[rows]
    # The first token of a request may be in flight: it has not left its prefill in our eyes.
    is_first = (status == SlotStatus.PREFILL) & (positions == table.num_tokens[rows])
    decodes = is_first | (status == SlotStatus.DECODE)
    over = (status == SlotStatus.ENDED) | (decodes & certainly_ended(positions, table.limit[rows]))
    # A row without a block for its next token must not run: it would write into somebody else's.
    ready = decodes & ~over & is_granted(positions, table.num_covered(rows), table.block_size)
    if not ready.all():
        report.exceptions += [(slot, 0) for slot in rows[~ready].tolist()]
        report.not_run += [(slot, NotRunReason.STALE) for slot in rows[~ready & ~over].tolist()]
    running: I64 = rows[ready]
    return running


def build_batch(
    table: RequestTable, step_id: int, decode: I64, drafts: list[I32] | None, chunks: list[SlotStart]
) -> Batch:
    """The batch of the `decode` rows, with their drafts, and of the prefill `chunks`. The tokens of rows that run ahead
    of a step in flight are arbitrary."""
    num_decode, num_rows = len(decode), len(decode) + len(chunks)
    slots, lengths = np.empty(num_rows, np.int32), np.ones(num_rows, np.int32)
    slots[:num_decode] = decode
    if chunks:
        slots[num_decode:] = [chunk.slot for chunk in chunks]
        lengths[num_decode:] = [chunk.length for chunk in chunks]
    if drafts is not None:
        lengths[:num_decode] += [len(draft) for draft in drafts]
    starts = table.num_computed[slots] + table.num_in_flight[slots]
    query_starts = np.zeros(num_rows + 1, np.int32)
    np.cumsum(lengths, out=query_starts[1:])
    rows = np.repeat(np.arange(len(slots), dtype=np.int32), lengths)
    positions = (np.arange(query_starts[-1], dtype=np.int32) - query_starts[rows]) + starts[rows]
    token_ids = table.tokens[slots[rows], np.minimum(positions, table.tokens.shape[1] - 1)]
    for row, draft in enumerate(drafts or []):
        token_ids[query_starts[row] + 1 : query_starts[row + 1]] = draft
    seq_lens = starts + lengths
    samples = positions >= table.num_tokens[slots[rows]] - 1
    scored, pooled = spans_to_read(table, chunks, query_starts, num_decode)
    for row, chunk in enumerate(chunks, num_decode):
        if table.pooling[chunk.slot] is not None:
            samples[query_starts[row] : query_starts[row + 1]] = False
    sample_index = np.flatnonzero(samples).astype(np.int32)
    sample_rows = rows[sample_index]
    width = max(int(seq_lens.max(initial=1)) - 1, 0) // table.block_size + 1
    return Batch(
        step_id=step_id,
        slots=slots,
        num_decode_rows=num_decode,
        query_starts=query_starts,
        token_ids=token_ids,
        positions=positions,
        seq_lens=seq_lens,
        block_tables=table.blocks[slots, :width],
        group_tables=[group.blocks[slots, :width] for group in table.groups],
        sample_index=sample_index,
        sample_rows=sample_rows,
        sample_output_positions=positions[sample_index] + 1 - table.num_prompt_tokens[slots[sample_rows]],
        sampling=table.sampling,
        tokens=table.tokens,
        num_prompt_tokens=table.num_prompt_tokens,
        num_tokens=table.num_tokens,
        scored=scored,
        pooled=pooled,
        pooling=table.pooling,
    )
