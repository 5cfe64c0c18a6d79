"""Takes sampled tokens into the table: drafts that were right, one token more, and none behind a request's end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from signalbox.protocol.enums import FinishReason
from worker_svc.core.batch import Sampled
from worker_svc.core.requests.automaton import FormLimitError, GrammarError, NoTokenError
from worker_svc.core.requests.grammar import GrammarTable
from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.core.requests.stop_tokens import StopTokens, tokens_up_to_stop
from worker_svc.core.running_step import RunningStep
from worker_svc.core.step import I32, I64, Failure

FORM_FIELD = "structured_output"


@dataclass(frozen=True)
class NewTokens:
    """What a step added, row by row; S rows that sampled."""

    slots: I32
    """[S] slot of each row."""
    first: I64
    """[S] number of each row's first sample."""
    starts: I32
    """[S] output tokens that each row had before."""
    counts: I64
    """[S] new tokens of each row."""
    token_ids: I32
    """Tokens of all rows, one behind the other."""
    ends: list[tuple[int, FinishReason]]
    """Slots that end with their last token."""
    failures: dict[int, Failure]
    """Why, by slot, of those that end with an error."""
    matched: I64
    """[D] right drafts per decode row of a batch with drafts, -1 where the model failed; else empty."""


def accept(
    table: RequestTable,
    stops: StopTokens,
    grammars: GrammarTable,
    step: RunningStep,
    sampled: Sampled,
    failed: dict[int, str],
) -> NewTokens:
    """Appends the tokens of all rows but the `failed` ones, each up to one that ends its request."""
    batch = step.batch
    rows, first = _sampling_rows(step)
    matched = _count_matches(step, sampled)
    counts = np.ones(len(rows), np.int64)
    counts[: len(matched)] += matched
    if failed:
        matched[[row for row in failed if row < len(matched)]] = -1
        keep = ~np.isin(rows, list(failed))
        rows, first, counts = rows[keep], first[keep], counts[keep]
    slots = batch.slots[rows]
    starts = table.num_tokens[slots] - table.num_prompt_tokens[slots]
    index = _ranges(first, counts)
    ends: dict[int, FinishReason] = {}
    stopping = stops.mask(sampled.token_ids[index])
    if stopping.any():
        suspects = np.unique(np.repeat(np.arange(len(slots)), counts)[stopping]).tolist()
        ends = _cut_at_stops(table, suspects, slots, first, counts, sampled.token_ids)
        index = _ranges(first, counts)
    failures: dict[int, Failure] = {}
    if grammars.followed[slots].any():
        ends |= _cut_at_forms(table, grammars, slots, first, counts, sampled.token_ids, failures)
        index = _ranges(first, counts)
    tokens = sampled.token_ids[index]
    _append(table, slots, counts, tokens)
    for row in np.flatnonzero(table.num_tokens[slots] >= table.limit[slots]).tolist():
        ends.setdefault(row, FinishReason.LENGTH)
    ending = [(int(slots[row]), reason) for row, reason in ends.items()]
    return NewTokens(slots, first, starts, counts, tokens, ending, failures, matched)


def _sampling_rows(step: RunningStep) -> tuple[I32, I64]:
    """[S] rows that have samples, and the number of each one's first."""
    rows = step.batch.sample_rows
    if step.drafts is None:  # one each
        return rows, np.arange(len(rows))
    return np.unique(rows, return_index=True)


def _count_matches(step: RunningStep, sampled: Sampled) -> I64:
    """[D] drafts per decode row that the model would have sampled itself, up to the first that it would not. Empty
    without drafts."""
    drafts = step.drafts or []
    matched = np.zeros(len(drafts), np.int64)
    offset = 0
    for row, draft in enumerate(drafts):
        same = draft == sampled.token_ids[offset : offset + len(draft)]
        matched[row] = len(draft) if same.all() else int(np.argmin(same))
        offset += len(draft) + 1
    if step.batch.masks is not None:
        for row, num_made in step.batch.masks.num_made.items():
            matched[row] = min(matched[row], num_made - 1)
    return matched


def _cut_at_stops(
    table: RequestTable, rows: list[int], slots: I32, first: I64, counts: I64, sampled: I32
) -> dict[int, FinishReason]:
    """Shortens the `counts` of `rows` in place to their first stop token. Returns the rows that have one of theirs."""
    ends: dict[int, FinishReason] = {}
    for row in rows:
        slot = int(slots[row])
        params = table.sampling.params[slot]
        assert params is not None
        tokens = sampled[first[row] : first[row] + counts[row]]
        kept = tokens_up_to_stop(params, table.num_output(slot), tokens)
        if kept:
            counts[row], ends[row] = kept, FinishReason.STOP
    return ends


def _cut_at_forms(
    table: RequestTable,
    grammars: GrammarTable,
    slots: I32,
    first: I64,
    counts: I64,
    sampled: I32,
    failures: dict[int, Failure],
) -> dict[int, FinishReason]:
    """Moves the automata over the tokens that count. Shortens `counts` in place to the token that completes a form, or
    to none where the form forbids one; fills in `failures` by slot. Returns the rows that end so."""
    ends: dict[int, FinishReason] = {}
    rows, tokens = np.flatnonzero(grammars.followed[slots]), sampled.tolist()
    columns = (column[rows].tolist() for column in (slots, first, counts))
    for row, slot, start, count in zip(rows.tolist(), *columns, strict=True):
        advance = grammars.advance(slot, tokens[start : start + count])
        if advance.num_tokens != count:
            counts[row] = advance.num_tokens
        if advance.error is not None:
            ends[row] = FinishReason.ERROR
            num_output = table.num_output(slot) + advance.num_tokens
            failures[slot] = form_failure(advance.error, num_output)
        elif advance.is_complete:
            ends[row] = FinishReason.STOP
    return ends


def form_failure(error: GrammarError, num_output: int) -> Failure:
    """Why a request ends whose form cannot be followed after `num_output` tokens. A form that asks for too much work is
    its client's fault, and so is a dead end, which is an error only where there is no output yet."""
    if isinstance(error, FormLimitError):
        return Failure("InvalidRequestError", f"{FORM_FIELD} {error}", FORM_FIELD)
    if isinstance(error, NoTokenError):
        fields = " and ".join((FORM_FIELD, *error.fields))
        if num_output:
            return Failure(
                "DeadEndError", f"{fields}: no token can follow output token {num_output}", FORM_FIELD
            )
        return Failure("InvalidRequestError", f"{fields}: no output can begin", FORM_FIELD)
    return Failure("InternalError", f"the output cannot follow its form any further: {error}", FORM_FIELD)


def _append(table: RequestTable, slots: I32, counts: I64, tokens: I32) -> None:
    known = table.num_tokens[slots]
    table.tokens[np.repeat(slots, counts), _ranges(known, counts)] = tokens
    known = known + counts
    table.num_tokens[slots], table.num_computed[slots] = known, known - 1
    table.status[slots] = SlotStatus.DECODE


def _ranges(first: I32 | I64, counts: I64) -> I32 | I64:
    """`first[i], first[i] + 1, ...` for `counts[i]` numbers each, one behind the other."""
    if (counts == 1).all():
        return first
    total = int(counts.sum())
    behind = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(behind + np.repeat(first, counts), np.int64)
