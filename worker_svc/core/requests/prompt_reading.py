"""What a prompt yields besides KV: log-probabilities of its tokens, or the result of a pooling request.

Each position is read exactly once: a preempted request computes positions again that it has been read at before, and
`RequestTable.num_read` says how far that is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from worker_svc.core.batch import QuerySpan, Sampled, TokenLogprobs
from worker_svc.core.requests.pooling import F32, MAX_STEP_BYTES
from worker_svc.core.requests.request_state import RequestTable
from worker_svc.core.running_step import RunningStep
from worker_svc.core.step import I32, Failure, SlotStart

TOO_MANY_RESULTS = Failure(
    "ResourceExhaustedError", "the results of one step are more than it may yield; ask for fewer at a time"
)
"""Why a request ends whose result is one too many."""


@dataclass
class PromptResults:
    """What a step made of prompts; by slot."""

    logprobs: dict[int, tuple[int, list[TokenLogprobs]]] = field(default_factory=dict)
    """Position of the first token in the prompt, and one per token from there on."""
    vectors: dict[int, F32] = field(default_factory=dict)
    """`[D]`, or `[T, D]` with a row for each token of the prompt: results of the requests that end with the step."""
    too_many: list[int] = field(default_factory=list)
    """Slots of requests that end without theirs: those of the others are as much as a step may yield."""


def unread_gap(table: RequestTable, chunk: SlotStart) -> str:
    """Says that the chunk starts behind a position that had to be read: cached blocks were used where none may be.
    Empty: it does not."""
    slot, pooling = chunk.slot, table.pooling[chunk.slot]
    if pooling is not None and not pooling.is_whole:
        first, end = pooling.positions(int(table.num_prompt_tokens[slot]))
        if first + 1 == end and first >= chunk.start:  # nothing that it skips is read
            return ""
    if not table.reads_prompt[slot] or chunk.start <= table.num_read[slot]:
        return ""
    return f"prompt positions from {table.num_read[slot]} to {chunk.start} were not computed"


def spans_to_read(
    table: RequestTable, chunks: list[SlotStart], query_starts: I32, first_row: int
) -> tuple[list[QuerySpan], list[QuerySpan]]:
    """Query tokens to be scored, and to be pooled; `chunks` are the rows of the batch from `first_row` on."""
    scored: list[QuerySpan] = []
    pooled: list[QuerySpan] = []
    for row, chunk in enumerate(chunks, first_row):
        if not table.reads_prompt[chunk.slot]:
            continue
        pooling, num_prompt = table.pooling[chunk.slot], int(table.num_prompt_tokens[chunk.slot])
        # Nothing of the prompt follows its last token: what that predicts is output.
        first, end = (0, num_prompt - 1) if pooling is None else pooling.positions(num_prompt)
        first = max(first, chunk.start, int(table.num_read[chunk.slot]))
        end = min(end, chunk.start + chunk.length)
        if first < end:
            offset = int(query_starts[row]) - chunk.start
            spans = scored if pooling is None else pooled
            spans.append(QuerySpan(row, offset + first, offset + end))
    return scored, pooled


def take_readings(
    table: RequestTable, step: RunningStep, sampled: Sampled, failed: dict[int, str]
) -> PromptResults:
    """Takes what was read of all rows but the `failed` ones. Prompts that are read to their end yield their vector."""
    batch, results = step.batch, PromptResults()
    for row, start, _ in batch.scored:
        if row not in failed:
            first = int(batch.positions[start]) + 1
            results.logprobs[int(batch.slots[row])] = (first, sampled.prompt_logprobs[row])
    for row, _, _ in batch.pooled:
        if row not in failed:
            reading = table.readings[int(batch.slots[row])]
            assert reading is not None
            reading.add(sampled.pooled[row])
    for row, chunk in enumerate(step.chunks, batch.num_decode_rows):
        if table.reads_prompt[chunk.slot] and row not in failed:
            _advance(table, chunk, results)
    _limit(results)
    return results


def _limit(results: PromptResults) -> None:
    """Takes out the results that are more than a step may yield."""
    num_bytes = 0
    for slot, values in list(results.vectors.items()):
        num_bytes += values.nbytes
        if num_bytes > MAX_STEP_BYTES:
            results.too_many.append(slot)
            del results.vectors[slot]


def _advance(table: RequestTable, chunk: SlotStart, results: PromptResults) -> None:
    slot, end = chunk.slot, chunk.start + chunk.length
    table.num_read[slot] = max(int(table.num_read[slot]), end)
    pooling = table.pooling[slot]
    if pooling is not None and end == table.prefill_target[slot]:
        reading = table.readings[slot]
        assert reading is not None
        results.vectors[slot] = reading.result(end)
