"""Messages as deltas, and reports as messages. Columns are packed as signalbox/protocol/columns.py says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from signalbox.links.outbox import split
from signalbox.protocol import columns
from signalbox.protocol.arrays import pack_blocks, unpack_blocks, write_arrays
from signalbox.protocol.parts.codecs import read_orders
from signalbox.v1 import from_worker_pb2, generation_pb2, shared_pb2, to_worker_pb2, worker_pb2
from worker_svc.core.alone.client_orders import ClientAction
from worker_svc.core.batch import RunnerInfo, TokenLogprobs
from worker_svc.core.requests.pooling import PoolingParams
from worker_svc.core.requests.request_state import SlotStatus
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.step import (
    CheckpointOrder,
    Failure,
    FrontendOutput,
    NewRequest,
    RequestRef,
    StepDelta,
    StepReport,
)
from worker_svc.core.worker_core import WorkerCore
from worker_svc.grammar.coordinator import GrammarResult
from worker_svc.links.handoff_columns import build_worker
from worker_svc.links.payload import (
    announces_grammar,
    is_pooling,
    parse_form,
    parse_pooling,
    parse_reasoning,
    parse_sampling,
    refusal,
    without_tokens,
)
from worker_svc.links.step_columns import parse_copies, parse_grants, parse_side_copies, parse_starts

PART_BYTES = 1 << 20
"""A snapshot above it travels in parts."""


# -- down --


def parse_step(message: to_worker_pb2.SchedulerOutput) -> StepDelta:
    """The delta of a step's message. Raises ValueError when its columns do not fit each other."""
    cached = message.scheduled_cached_reqs
    grants, others = parse_grants(cached)
    return StepDelta(
        step_id=message.step_id,
        scheduler_epoch=message.scheduler_epoch,
        started=parse_starts(message.scheduled_new_reqs),
        resumed=parse_starts(cached.resumed),
        grant_slots=grants[0],
        grant_blocks=grants[1].astype(np.int32),
        group_grants=others,
        chunks=columns.CHUNKS.read(cached),
        finished_slots=columns.unpack(message.finished_slots, columns.U16),
        preempted_slots=columns.unpack(message.preempted_slots, columns.U16),
        paused_slots=columns.unpack(message.paused_slots, columns.U16),
        unpaused_slots=columns.unpack(message.unpaused_slots, columns.U16),
        draft_limits=columns.DRAFTS.read(message),
        copies=parse_copies(message.block_copies),
        side_copies=parse_side_copies(message),
        is_solo=message.is_solo,
        aside_slots=columns.unpack(message.aside_slots, columns.U16),
        may_be_skipped=message.may_be_skipped,
        checkpoints=[CheckpointOrder(*row) for row in columns.CHECKPOINTS.read(message.checkpoints)],
        orders=read_orders(message),
    )


def has_prefill(message: to_worker_pb2.SchedulerOutput) -> bool:
    """The step computes a prompt, or a part of it."""
    cached = message.scheduled_cached_reqs
    return bool(message.scheduled_new_reqs.slots or cached.resumed.slots or cached.chunk_slots)


def parse_new_request(message: to_worker_pb2.NewRequestData, info: RunnerInfo) -> NewRequest:
    """A request with its payload. One that cannot run here carries a `failure`: it must still end properly."""
    ref = RequestRef(message.ref.request_id, message.ref.attempt, message.frontend_instance)
    try:
        payload = generation_pb2.RequestPayload.FromString(message.payload)
    except DecodeError:
        return _failed(message, ref, info, Failure("InvalidRequestError", "the payload cannot be read"))
    if len(payload.token_ids) % 4:
        return _failed(
            message, ref, info, Failure("InvalidRequestError", "the tokens cannot be read", "prompt")
        )
    token_ids = np.frombuffer(payload.token_ids, np.int32)
    failure = refusal(message, payload, token_ids, info)
    if failure is not None:
        return _failed(message, ref, info, failure)
    return NewRequest(
        slot=message.slot,
        ref=ref,
        token_ids=token_ids,
        num_prior_output_tokens=payload.num_prior_output_tokens,
        max_tokens=message.max_tokens,
        sampling=parse_sampling(payload, info),
        chain_hash=message.chain_hash,
        max_draft_tokens=message.max_draft_tokens,
        scheduler_meta=message.scheduler_meta,
        pooling=parse_pooling(payload, info) if is_pooling(message) else None,
        form=None if is_pooling(message) else parse_form(payload),
        reasoning=parse_reasoning(payload),
        leg=message.leg,
        account=message.account,
        payload=without_tokens(payload),
    )


def _failed(
    message: to_worker_pb2.NewRequestData, ref: RequestRef, info: RunnerInfo, failure: Failure
) -> NewRequest:
    return NewRequest(
        slot=message.slot,
        ref=ref,
        token_ids=np.zeros(min(message.num_known_tokens, info.max_model_len), np.int32),
        num_prior_output_tokens=0,
        max_tokens=1,
        sampling=SamplingParams(),
        chain_hash=b"",
        scheduler_meta=message.scheduler_meta,
        # The kind holds for a request that fails too: whether decode rows follow its prefill depends on it.
        pooling=PoolingParams() if is_pooling(message) else None,
        tells_early=announces_grammar(message),
        failure=failure,
        leg=message.leg,
    )


def parse_loan(message: to_worker_pb2.BlockLoan) -> list[NDArray[np.int32]]:
    """The lent blocks of each group, in the order in which they are to be taken."""
    return [unpack_blocks(message.block_ids), *(unpack_blocks(group.block_ids) for group in message.groups)]


# -- up --


def build_report(report: StepReport) -> from_worker_pb2.ModelRunnerOutput:
    """A report as a message. An absent group stays unset."""
    message = from_worker_pb2.ModelRunnerOutput(
        step_id=report.step_id,
        num_decode_rows=report.num_decode_rows,
        num_prefill_tokens=report.num_prefill_tokens,
    )
    if report.exceptions:
        columns.EXCEPTIONS.write(message, report.exceptions)
    if report.decode_counts is not None:
        message.decode_counts = report.decode_counts.tobytes()
    if report.not_run:
        columns.NOT_RUN.write(message, report.not_run)
    if report.finished:
        columns.FINISHED.write(message, report.finished)
    if report.sealed_slots:
        columns.SEALED.write(message, list(zip(report.sealed_slots, report.sealed_indexes, strict=True)))
        message.sealed_hashes = b"".join(report.sealed_hashes)
    if report.draft_limits:
        columns.DRAFTS.write(message, report.draft_limits)
    message.num_draft_tokens, message.num_accepted_tokens = report.num_drafted, report.num_accepted
    if report.withdrawn_slots:
        message.withdrawn_slots = columns.pack(report.withdrawn_slots, columns.U16)
    if report.checkpoint_positions:
        message.checkpoint_positions = columns.pack(report.checkpoint_positions, columns.U32)
    if report.mask_us:
        columns.MASKS.write(message, report.mask_us)
    return message


def build_grammar_event(result: GrammarResult) -> from_worker_pb2.WorkerEvent:
    """What came of a grammar, as an event."""
    ref = shared_pb2.RequestRef(request_id=result.ref.request_id, attempt=result.ref.attempt)
    if result.is_ready:
        return from_worker_pb2.WorkerEvent(
            grammar_ready=from_worker_pb2.GrammarReady(slot=result.slot, ref=ref)
        )
    event = from_worker_pb2.GrammarFailed(slot=result.slot, ref=ref)
    if result.failure is not None:
        event.error.CopyFrom(_error(result.failure))
    return from_worker_pb2.WorkerEvent(grammar_failed=event)


def build_fence_ended(fence: int, failure: Failure | None) -> from_worker_pb2.WorkerEvent:
    """The end of copies beside the steps, as an event."""
    ended = from_worker_pb2.FenceEnded(fence=fence)
    if failure is not None:
        ended.error.CopyFrom(_error(failure))
    return from_worker_pb2.WorkerEvent(fence_ended=ended)


def _error(failure: Failure) -> generation_pb2.Error:
    return generation_pb2.Error(code=failure.code, message=failure.message, field=failure.field)


def parse_operations(
    operations: Iterable[worker_pb2.AttemptOperation],
) -> tuple[tuple[int, ClientAction], ...]:
    """What a frontend wants, by attempt. Actions of another version are left out."""
    known = {action.value for action in ClientAction}
    return tuple((each.attempt, ClientAction(each.action)) for each in operations if each.action in known)


def build_outputs(output: FrontendOutput, sequence: int) -> worker_pb2.OutputBatch:
    """What one frontend is told of a step, as a message."""
    message = worker_pb2.OutputBatch(
        sequence=sequence,
        counts=b"" if output.counts is None else output.counts.tobytes(),
        token_ids=output.token_ids.astype(columns.I32).tobytes(),
    )
    write_arrays(message, columns.ATTEMPTS, output.attempts, output.starts)
    legs = output.legs
    if legs:
        message.legs = columns.pack((legs.get(each, 0) for each in output.attempts.tolist()), columns.U32)
    for attempt, num_found in output.found:
        message.found.add(attempt=attempt, num_cached_tokens=num_found)
    for attempt, reason, count, failure in output.finished:
        finished = message.finished.add(
            attempt=attempt,
            reason=int(reason),  # type: ignore[arg-type]
            num_output_tokens=count,
            leg=legs.get(attempt, 0),
        )
        if failure is not None:
            finished.error.CopyFrom(_error(failure))
    for attempt, tokens in output.logprobs:
        message.logprobs.add(attempt=attempt, tokens=_logprobs(tokens))
    for attempt, start, tokens in output.prompt_logprobs:
        message.prompt_logprobs.add(
            attempt=attempt, start=start, tokens=_logprobs(tokens), leg=legs.get(attempt, 0)
        )
    for attempt, vector in output.vectors:
        message.vectors.add(attempt=attempt, values=vector.astype(np.float32).tobytes())
    return message


def _logprobs(tokens: list[TokenLogprobs]) -> list[generation_pb2.TokenLogprobs]:
    return [
        generation_pb2.TokenLogprobs(
            logprob=token.logprob,
            rank=token.rank,
            top_token_ids=token.top_token_ids,
            top_logprobs=token.top_logprobs,
        )
        for token in tokens
    ]


def build_groups(info: RunnerInfo) -> list[from_worker_pb2.BlockGroup]:
    """The groups of a hello."""
    return [
        from_worker_pb2.BlockGroup(
            kind=group.kind,  # type: ignore[arg-type]
            reach=group.reach,
            num_blocks=group.num_blocks,
            bytes_per_block=group.bytes_per_block,
            num_host_blocks=group.num_host_blocks,
        )
        for group in info.groups
    ]


def build_state_group(info: RunnerInfo) -> from_worker_pb2.StateGroup | None:
    """The checkpoints of a hello; None: the worker has none."""
    if info.state_group is None:
        return None
    return from_worker_pb2.StateGroup(
        boundary=info.state_group.boundary,
        num_checkpoints=info.state_group.num_checkpoints,
        bytes_per_checkpoint=info.state_group.bytes_per_checkpoint,
        prompts_only=info.state_group.prompts_only,
        num_host_checkpoints=info.state_group.num_host_checkpoints,
    )


def host_blocks_of(info: RunnerInfo) -> dict[str, Any]:
    """The fields of a hello with the spine's blocks in the host tier: who knows of no other groups there is to have
    none of it."""
    is_whole = not info.groups and info.state_group is None
    return {"num_host_blocks" if is_whole else "num_spine_host_blocks": info.num_host_blocks}


def build_snapshot(core: WorkerCore) -> from_worker_pb2.WorkerSnapshot:
    """Everything that a scheduler needs to take this worker's table over."""
    core.table.leave_behind()
    written_alone, *others = [columns.pack(taken, columns.U32) for taken in core.loan.taken]
    return from_worker_pb2.WorkerSnapshot(
        scheduler_epoch=core.scheduler_epoch,
        scheduler_instance=core.scheduler_instance,
        last_step_id=core.last_step_id,
        last_scheduled_step_id=core.last_scheduled_step_id,
        blocks_written_alone=written_alone,
        groups_written_alone=[shared_pb2.GroupBlocks(block_ids=taken) for taken in others],
        slots=[_build_slot(core, slot) for slot in core.held_slots()],
    )


def split_snapshot(snapshot: from_worker_pb2.WorkerSnapshot) -> list[from_worker_pb2.SnapshotPart]:
    """Leaves as many slots in `snapshot` as make PART_BYTES, and returns the others in parts of so many bytes."""
    parts = list(split(list(snapshot.slots), lambda slot: slot.ByteSize(), PART_BYTES))[1:]
    if parts:
        del snapshot.slots[len(snapshot.slots) - sum(map(len, parts)) :]
        snapshot.num_parts = len(parts)
    return [from_worker_pb2.SnapshotPart(slots=part) for part in parts]


def _build_slot(core: WorkerCore, slot: int) -> from_worker_pb2.SlotSnapshot:
    table, ref = core.table, core.table.refs[slot]
    assert ref is not None and table.status[slot] != SlotStatus.IMPORTING
    built = from_worker_pb2.SlotSnapshot(
        slot=slot,
        ref=shared_pb2.RequestRef(request_id=ref.request_id, attempt=ref.attempt),
        frontend_instance=ref.frontend_instance,
        status=int(table.status[slot]),  # type: ignore[arg-type]
        block_ids=pack_blocks(table.blocks[slot, : table.num_blocks[slot]]),
        group_tables=[
            shared_pb2.GroupBlocks(block_ids=pack_blocks(group.table(slot)), first=int(group.firsts[slot]))
            for group in table.groups
        ],
        sealed_hashes=b"".join(table.sealed[slot]),
        num_computed_tokens=int(table.num_computed[slot]),
        num_output_tokens=table.num_output(slot),
        prefill_target=int(table.prefill_target[slot]),
        max_draft_tokens=int(table.max_drafts[slot]),
        paused=bool(table.paused[slot]),
        scheduler_meta=table.metas[slot],
        withdrawn=bool(table.withdrawn[slot]),
        leg=int(table.legs[slot]),
        lane=int(table.lane[slot]),
    )
    export, found = core.handoffs.exports.by_slot.get(slot), core.handoffs.imports.by_slot.get(slot)
    if export is not None and export.frozen is not None:
        built.frozen_status, built.paused = export.frozen.status, export.frozen.paused  # type: ignore[assignment]
        built.transfer.transfer = export.transfer
        built.transfer.other.CopyFrom(build_worker(export.target))
    elif found is not None:
        built.transfer.transfer = found.request.transfer
        built.transfer.other.CopyFrom(build_worker(found.request.source))
    return built
