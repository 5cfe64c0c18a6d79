"""The worker's rules: a delta comes in and becomes a batch; sampled tokens come in and become a report and outputs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from signalbox.hash_chain import block_hash
from worker_svc.core.batch import Batch, BlockCopy, Drafter, RunnerInfo, Sampled
from worker_svc.core.request_state import RequestTable, SlotStatus
from worker_svc.core.step import (
    I64,
    Failure,
    FinishReason,
    FrontendOutput,
    NewRequest,
    NotRunReason,
    SlotStart,
    StepDelta,
    StepReport,
)

I32 = NDArray[np.int32]


class StepRefusedError(Exception):
    """The delta is not for us: an older scheduler's, or out of order. The link is to be closed; our next hello says
    where we stand."""


@dataclass
class RunningStep:
    """What `commit` has to remember of `apply`."""

    report: StepReport
    batch: Batch
    rows: I64
    """[D] slots of all decode rows of the step, ended ones included."""
    chunks: list[SlotStart] = field(default_factory=list)
    """Prefill chunks that run, in the order of the batch's rows."""
    copies: list[BlockCopy] = field(default_factory=list)
    """To be made before the batch runs."""
    drafts: list[I32] | None = None
    """Per decode row of the batch; None: no row has drafts."""


class WorkerCore:
    """The requests of one worker and the steps that move them on. One thread owns it."""

    def __init__(self, info: RunnerInfo, num_slots: int, drafter: Drafter | None = None) -> None:
        self.table = RequestTable(num_slots, info.max_model_len, info.block_size)
        self.scheduler_epoch = 0
        self.last_step_id = 0
        self._drafter = drafter
        self._settling: list[int] = []
        """Slots whose final chunk was named in the last step: decode rows from the next one on."""
        self._failed: list[int] = []
        """Slots that ended before any step ran them; the next report says so."""
        self._stop_ids: dict[int, int] = {}
        """Stop tokens of all requests, counted: most sampled tokens are in nobody's set."""
        self._frontends: dict[str, int] = {}
        self._frontend_of = np.zeros(num_slots, np.int32)

    # -- what comes in --

    def add(self, request: NewRequest) -> None:
        """Moves a request into its slot, ahead of any step that names it."""
        slot, table = request.slot, self.table
        if table.status[slot] != SlotStatus.FREE:
            self._clear(slot)
        table.add(request)
        for token in request.sampling.stop_token_ids:
            self._stop_ids[token] = self._stop_ids.get(token, 0) + 1
        self._frontend_of[slot] = self._frontends.setdefault(
            request.ref.frontend_instance, len(self._frontends)
        )
        if request.failure is not None:
            table.end(slot, FinishReason.ERROR, request.failure)
            self._failed.append(slot)

    def apply(self, delta: StepDelta) -> RunningStep:
        """Takes a delta into the table and derives the step's batch. Raises StepRefusedError."""
        self._check(delta)
        self._settle()
        self._apply_changes(delta)
        table = self.table
        rows = np.flatnonzero(table.runs & ~table.paused)
        report = StepReport(delta.step_id, num_decode_rows=len(rows))
        chunks = self._admit_chunks(delta, report)
        # A row without a block for its next token must not run: it would write into somebody else's.
        covered = table.num_computed[rows] < table.num_blocks[rows] * table.block_size
        runnable = covered & (table.status[rows] == SlotStatus.DECODE)
        ready = rows[runnable]
        if len(ready) != len(rows):
            self._except_rows(rows[~runnable], report)
        drafts = self._propose(ready)
        batch = self._batch(delta.step_id, ready, drafts, chunks)
        return RunningStep(report, batch, rows, chunks, delta.copies, drafts)

    def _check(self, delta: StepDelta) -> None:
        if delta.scheduler_epoch < self.scheduler_epoch:
            raise StepRefusedError(f"epoch {delta.scheduler_epoch} is older than {self.scheduler_epoch}")
        if delta.step_id != self.last_step_id + 1:
            raise StepRefusedError(f"step {delta.step_id} follows step {self.last_step_id}")
        self.scheduler_epoch, self.last_step_id = delta.scheduler_epoch, delta.step_id

    def _settle(self) -> None:
        for slot in self._settling:
            self.table.runs[slot] = True
        self._settling = []

    def _apply_changes(self, delta: StepDelta) -> None:
        """In the order of the design: finished, preempted, grants, resumed, new; then pauses and limits."""
        table = self.table
        for slot in delta.finished_slots:
            self._clear(slot)
        for slot in delta.preempted_slots:
            table.preempt(slot)
        for slot, block in zip(delta.grant_slots.tolist(), delta.grant_blocks.tolist(), strict=True):
            table.blocks[slot, table.num_blocks[slot]] = block
            table.num_blocks[slot] += 1
        for start in (*delta.resumed, *delta.started):
            if table.status[start.slot] in (SlotStatus.PREPARING, SlotStatus.PREEMPTED):
                table.start(start.slot, start.blocks, start.start)
        table.paused[delta.paused_slots] = True
        table.paused[delta.unpaused_slots] = False
        for slot, limit in delta.draft_limits:
            table.max_drafts[slot] = limit

    def _admit_chunks(self, delta: StepDelta, report: StepReport) -> list[SlotStart]:
        """The chunks that start where their request stands; the others are reported as not run."""
        table, admitted = self.table, []
        none = np.empty(0, np.int32)
        named = [SlotStart(slot, none, start, length) for slot, start, length in delta.chunks]
        for chunk in (*named, *delta.resumed, *delta.started):
            slot, is_final = chunk.slot, chunk.start + chunk.length == table.prefill_target[chunk.slot]
            report.num_prefill_tokens += chunk.length
            if is_final:
                self._settling.append(slot)
            if table.status[slot] == SlotStatus.PREFILL and table.num_computed[slot] == chunk.start:
                admitted.append(chunk)
                continue
            ended = table.status[slot] == SlotStatus.ENDED
            report.not_run.append((slot, NotRunReason.ENDED if ended else NotRunReason.STALE))
            if is_final:
                report.exceptions.append((slot, 0))
        return admitted

    def _except_rows(self, rows: I64, report: StepReport) -> None:
        for slot in rows.tolist():
            report.exceptions.append((slot, 0))
            if self.table.status[slot] != SlotStatus.ENDED:
                report.not_run.append((slot, NotRunReason.STALE))

    # -- the batch --

    def _propose(self, slots: I64) -> list[I32] | None:
        """Drafts per decode row, never more than leave room for the token after them."""
        table = self.table
        if self._drafter is None:
            return None
        limits = np.minimum(table.max_drafts[slots], table.limit[slots] - table.num_tokens[slots] - 1)
        limits = np.minimum(limits, table.num_blocks[slots] * table.block_size - table.num_tokens[slots])
        if not (limits > 0).any():
            return None
        return [
            self._drafter.propose(slot, table.tokens[slot, : table.num_tokens[slot]], limit)[:limit]
            for slot, limit in zip(slots.tolist(), limits.tolist(), strict=True)
        ]

    def _batch(self, step_id: int, decode: I64, drafts: list[I32] | None, chunks: list[SlotStart]) -> Batch:
        table, num_decode = self.table, len(decode)
        slots = np.concatenate((decode, [chunk.slot for chunk in chunks])).astype(np.int32)
        lengths = np.ones(len(slots), np.int32)
        starts = table.num_computed[slots]
        lengths[num_decode:] = [chunk.length for chunk in chunks]
        if drafts is not None:
            lengths[:num_decode] += [len(draft) for draft in drafts]
        query_starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        rows = np.repeat(np.arange(len(slots), dtype=np.int32), lengths)
        positions = (np.arange(query_starts[-1], dtype=np.int32) - query_starts[rows]) + starts[rows]
        token_ids = table.tokens[slots[rows], np.minimum(positions, table.tokens.shape[1] - 1)]
        for row, draft in enumerate(drafts or []):
            token_ids[query_starts[row] + 1 : query_starts[row + 1]] = draft
        seq_lens = starts + lengths
        samples = positions >= table.num_tokens[slots[rows]] - 1
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
            sample_index=sample_index,
            sample_rows=sample_rows,
            sample_output_positions=positions[sample_index] + 1 - table.num_prompt_tokens[slots[sample_rows]],
            sampling=table.sampling,
            tokens=table.tokens,
            num_prompt_tokens=table.num_prompt_tokens,
            num_tokens=table.num_tokens,
        )

    # -- what goes out --

    def commit(
        self, step: RunningStep, sampled: Sampled, failed: dict[int, str]
    ) -> tuple[StepReport, list[FrontendOutput]]:
        """Takes the sampled tokens into the table. `failed` are rows of the batch that the model failed on."""
        table, batch, report = self.table, step.batch, step.report
        for row, message in failed.items():
            self._fail_row(step, row, message)
        for chunk in step.chunks:
            if table.status[chunk.slot] == SlotStatus.PREFILL:
                table.num_computed[chunk.slot] = chunk.start + chunk.length
        counts = self._count_accepted(step, sampled)
        rows = np.unique(batch.sample_rows)
        if failed:
            keep = ~np.isin(rows, list(failed))
            rows, counts = rows[keep], counts[keep]
        first = np.searchsorted(batch.sample_rows, rows)
        slots = batch.slots[rows]
        starts = table.num_tokens[slots] - table.num_prompt_tokens[slots]
        tokens, counts, ends = self._append(slots, first, counts, sampled.token_ids)
        report.exceptions += [(int(s), int(n)) for s, n in zip(slots, counts, strict=True) if n != 1]
        self._seal(slots, report)
        ended = self._end(slots, ends, report)
        self._use_dense_counts(step, slots, counts)
        logprobs = {
            int(slots[i]): [sampled.logprobs[int(first[i]) + j] for j in range(int(counts[i]))]
            for i in range(len(slots) if sampled.logprobs else 0)
            if int(first[i]) in sampled.logprobs
        }
        return report, self._outputs(slots, starts, counts, tokens, ended, logprobs)

    def _fail_row(self, step: RunningStep, row: int, message: str) -> None:
        slot = int(step.batch.slots[row])
        self.table.end(
            slot, FinishReason.ERROR, Failure("InternalError", f"the model failed on the request: {message}")
        )
        self._failed.append(slot)
        if row < step.batch.num_decode_rows:
            step.report.exceptions.append((slot, 0))
            return
        chunk = step.chunks[row - step.batch.num_decode_rows]
        step.report.not_run.append((slot, NotRunReason.ERROR))
        if chunk.start + chunk.length == self.table.prefill_target[slot]:
            step.report.exceptions.append((slot, 0))

    def _count_accepted(self, step: RunningStep, sampled: Sampled) -> I64:
        """New tokens per sampling row: one, and one more for each draft that the model would have sampled itself."""
        num_rows = len(np.unique(step.batch.sample_rows))
        counts = np.ones(num_rows, np.int64)
        offset = 0
        for row, draft in enumerate(step.drafts or []):
            same = draft == sampled.token_ids[offset : offset + len(draft)]
            counts[row] += len(draft) if same.all() else int(np.argmin(same))
            offset += len(draft) + 1
        return counts

    def _append(
        self, slots: I32, first: I64, counts: I64, sampled: I32
    ) -> tuple[I32, I64, list[tuple[int, FinishReason]]]:
        """Appends the tokens of each row, up to one that ends the request. Returns tokens, counts and who ended."""
        table = self.table
        index = _ranges(first, counts)
        ends: dict[int, FinishReason] = {}
        stops = (
            np.isin(sampled[index], list(self._stop_ids))
            if self._stop_ids
            else np.zeros(len(index), np.bool_)
        )
        if stops.any():
            row_of = np.repeat(np.arange(len(slots)), counts)
            for row in np.unique(row_of[stops]).tolist():
                kept = self._find_stop(int(slots[row]), sampled[first[row] : first[row] + counts[row]])
                if kept:
                    counts[row], ends[row] = kept, FinishReason.STOP
            index = _ranges(first, counts)
        tokens = sampled[index]
        rows = np.repeat(np.arange(len(slots)), counts)
        offsets = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
        table.tokens[slots[rows], table.num_tokens[slots[rows]] + offsets] = tokens
        table.num_tokens[slots] += counts.astype(np.int32)
        table.num_computed[slots] = table.num_tokens[slots] - 1
        table.status[slots] = SlotStatus.DECODE
        for row in np.flatnonzero(table.num_tokens[slots] >= table.limit[slots]).tolist():
            ends.setdefault(row, FinishReason.LENGTH)
        return tokens, counts, [(int(slots[row]), reason) for row, reason in ends.items()]

    def _find_stop(self, slot: int, tokens: I32) -> int:
        """How many of `tokens` count, up to one that ends the request; 0: none does."""
        params = self.table.sampling.params[slot]
        assert params is not None
        done = self.table.num_output(slot)
        for position, token in enumerate(tokens.tolist(), start=1):
            if token in params.stop_token_ids and done + position > params.min_tokens:
                return position
        return 0

    def _seal(self, slots: I32, report: StepReport) -> None:
        """Names the blocks whose KV is written: the last token of a sequence has none yet."""
        table, size = self.table, self.table.block_size
        for slot in slots[(table.next_seal[slots] + 1) * size <= table.num_tokens[slots] - 1].tolist():
            while table.chain[slot] and (table.next_seal[slot] + 1) * size <= table.num_tokens[slot] - 1:
                index = int(table.next_seal[slot])
                content = table.tokens[slot, index * size : (index + 1) * size].astype("<i4", copy=False)
                table.chain[slot] = block_hash(table.chain[slot], content.tobytes())
                table.sealed[slot].append(table.chain[slot])
                table.next_seal[slot] += 1
                report.sealed_slots.append(slot)
                report.sealed_indexes.append(index)
                report.sealed_hashes.append(table.chain[slot])

    def _end(self, slots: I32, ends: list[tuple[int, FinishReason]], report: StepReport) -> list[int]:
        """Ends the requests that are done, and reports those that failed before."""
        for slot, reason in ends:
            self.table.end(slot, reason)
        ended = [*self._failed, *(slot for slot, _ in ends)]
        self._failed = []
        for slot in ended:
            reason = FinishReason(int(self.table.finish_reasons[slot]))
            report.finished.append((slot, reason, self.table.num_output(slot)))
        return ended

    def _use_dense_counts(self, step: RunningStep, slots: I32, counts: I64) -> None:
        """An exception costs three bytes, a dense count one."""
        report = step.report
        if len(report.exceptions) * 3 <= len(step.rows):
            return
        is_row = np.isin([slot for slot, _ in report.exceptions], step.rows)
        dense = np.ones(len(step.rows), np.uint8)
        for (slot, count), in_rows in zip(report.exceptions, is_row, strict=True):
            if in_rows:
                dense[np.searchsorted(step.rows, slot)] = count
        report.decode_counts = dense
        report.exceptions = [
            item for item, in_rows in zip(report.exceptions, is_row, strict=True) if not in_rows
        ]

    def _outputs(
        self,
        slots: I32,
        starts: I32,
        counts: I64,
        tokens: I32,
        ended: list[int],
        logprobs: dict[int, list],  # type: ignore[type-arg]
    ) -> list[FrontendOutput]:
        """Sorts the new tokens by the frontend that waits for them."""
        owners = self._frontend_of[slots]
        concerned = set(owners.tolist()) | {int(self._frontend_of[slot]) for slot in ended}
        token_owner = np.repeat(owners, counts)
        outputs = []
        for instance, number in self._frontends.items():
            if number not in concerned:
                continue
            mine = owners == number
            attempts = self.table.attempts[slots[mine]]
            outputs.append(
                FrontendOutput(
                    frontend_instance=instance,
                    attempts=attempts,
                    starts=starts[mine].astype(np.uint32),
                    counts=None if (counts[mine] == 1).all() else counts[mine].astype(np.uint8),
                    token_ids=tokens[token_owner == number],
                    finished=[self._finished(slot) for slot in ended if self._frontend_of[slot] == number],
                    logprobs=[
                        (int(self.table.attempts[slot]), values)
                        for slot, values in logprobs.items()
                        if self._frontend_of[slot] == number
                    ],
                )
            )
        return outputs

    def _finished(self, slot: int) -> tuple[int, FinishReason, int, Failure | None]:
        table = self.table
        reason = FinishReason(int(table.finish_reasons[slot]))
        return int(table.attempts[slot]), reason, table.num_output(slot), table.failures[slot]

    def _clear(self, slot: int) -> None:
        params = self.table.sampling.params[slot]
        for token in params.stop_token_ids if params is not None else ():
            self._stop_ids[token] -= 1
            if not self._stop_ids[token]:
                del self._stop_ids[token]
        if slot in self._failed:
            self._failed.remove(slot)
        self.table.clear(slot)

    # -- a broken link --

    def rest(self) -> None:
        """The link ended and all steps have run: nothing is half announced any more."""
        table = self.table
        self._settling = []
        table.runs[:] = table.status == SlotStatus.DECODE
        table.paused &= table.runs

    def held_slots(self) -> list[int]:
        """Slots that a snapshot has to tell of."""
        return np.flatnonzero(self.table.status != SlotStatus.FREE).tolist()


def _ranges(first: I64, counts: I64) -> I64:
    """`first[i], first[i] + 1, ...` for `counts[i]` numbers each, one behind the other."""
    total = int(counts.sum())
    return np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
