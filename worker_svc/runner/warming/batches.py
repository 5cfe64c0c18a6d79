"""Batches of warm-up steps: rows of requests that are not there."""

from __future__ import annotations

import numpy as np

from signalbox.protocol.block_groups import states_number
from worker_svc.core.batch import I32, Batch, BlockCopy, QuerySpan, RunnerInfo
from worker_svc.core.requests.masks import Masks
from worker_svc.core.requests.sampling import SamplingTable
from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.runner.warming.plan import WarmRow, WarmStep

STEP_ID = 0
MASK_BITS = 32


def batch_of(step: WarmStep, info: RunnerInfo, scratch_blocks: tuple[int, ...]) -> Batch:
    """The batch of `step`. scratch_blocks: of the spine and each other group, a block that no request has."""
    rows, num_decode = step.rows, len(step.decodes)
    starts, positions = columns_of(rows)
    sample_index, sample_rows = samples_of(starts, num_decode)
    spine, *groups = [table_of(rows, block, info.block_size) for block in scratch_blocks]
    ends = np.array([row.start + row.count for row in rows], np.int32)
    known = np.array([*(row.start + 1 for row in step.decodes), *ends[num_decode:]], np.int32)
    batch = Batch(
        step_id=STEP_ID,
        slots=np.arange(len(rows), dtype=np.int32),
        num_decode_rows=num_decode,
        query_starts=starts,
        token_ids=np.zeros(len(positions), np.int32),
        positions=positions,
        seq_lens=ends,
        block_tables=spine,
        group_tables=groups,
        sample_index=sample_index,
        sample_rows=sample_rows,
        sample_output_positions=np.ones(len(sample_rows), np.int32),
        sampling=sampling_of(step, info.num_slots),
        tokens=np.zeros((info.num_slots, info.max_model_len), np.int32),
        num_prompt_tokens=_by_slot(info, known - (np.arange(len(rows)) < num_decode)),
        num_tokens=_by_slot(info, known),
    )
    _add_states(batch, info)
    _add_masks(batch, step, info)
    if step.is_scored:
        batch.scored = [
            QuerySpan(row, int(starts[row]), int(starts[row + 1]) - 1) for row in range(len(rows))
        ]
    return batch


def samples_of(starts: I32, num_decode: int) -> tuple[I32, I32]:
    """`[N]` query tokens whose next token is wanted, and `[N]` their rows: all of decode rows, the last of chunks."""
    decoding = np.arange(starts[num_decode])
    rows_of_these = np.repeat(np.arange(num_decode), np.diff(starts[: num_decode + 1]))
    index = np.concatenate((decoding, starts[num_decode + 1 :] - 1))
    rows = np.concatenate((rows_of_these, np.arange(num_decode, len(starts) - 1)))
    return index.astype(np.int32), rows.astype(np.int32)


def copies_of(info: RunnerInfo, scratch_blocks: tuple[int, ...]) -> list[BlockCopy]:
    """A copy in each group, and of checkpoints, that changes nothing; to the host tier and back, while it is empty."""
    copies = [BlockCopy(block, False, block, False, group) for group, block in enumerate(scratch_blocks)]
    if info.num_host_blocks:
        (block, *_) = scratch_blocks
        copies += [BlockCopy(block, False, 0, True), BlockCopy(0, True, block, False)]
    if info.state_group is not None:
        copies.append(BlockCopy(0, False, 0, False, states_number(info.groups)))
    return copies


def columns_of(rows: tuple[WarmRow, ...]) -> tuple[I32, I32]:
    """`[R + 1]` number of each row's first query token, and `[T]` position of each token."""
    starts = np.cumsum([0, *(row.count for row in rows)]).astype(np.int32)
    positions = np.concatenate([np.arange(row.start, row.start + row.count, dtype=np.int32) for row in rows])
    return starts, positions


def table_of(rows: tuple[WarmRow, ...], block: int, block_size: int) -> I32:
    """`[R, W]` as many entries as the longest row needs, all of them `block`."""
    longest = max(row.start + row.count for row in rows)
    return np.full((len(rows), -(-longest // block_size)), block, np.int32)


def sampling_of(step: WarmStep, num_slots: int) -> SamplingTable:
    """The parameters of the step's rows."""
    table = SamplingTable(num_slots)
    for slot in range(len(step.rows)):
        table.set(slot, step.params)
        table.follows_form[slot] = step.is_masked
        table.num_prompt_logprobs[slot] = 1 if step.is_scored else table.num_prompt_logprobs[slot]
    return table


def _by_slot(info: RunnerInfo, values: I32) -> I32:
    column = np.zeros(info.num_slots, np.int32)
    column[: len(values)] = values
    return column


def _add_masks(batch: Batch, step: WarmStep, info: RunnerInfo) -> None:
    """One mask for all samples, which allows no token: the sampler knows what to do then."""
    if step.is_masked:
        batch.mask_index = np.zeros(len(batch.sample_rows), np.int32)
        batch.masks = Masks([], batch.mask_index, 1, -(-info.vocab_size // MASK_BITS))


def _add_states(batch: Batch, info: RunnerInfo) -> None:
    """Each row goes on from a version of its slot's recurrent state, or begins, and leaves another one."""
    if info.num_state_versions:
        begins = batch.positions[batch.query_starts[:-1]] == 0
        batch.state_reads = np.where(begins, NOTHING, 0).astype(np.int32)
        batch.state_writes = np.ones_like(batch.slots)
        batch.state_tails = np.zeros_like(batch.slots)
