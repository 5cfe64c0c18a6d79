"""Decisions as messages, and messages as reports: the only place of the scheduler that knows how columns are packed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.blocks.block_pool import HASH_DTYPE, Blocks
from scheduler_svc.core.cluster.worker_info import WorkerInfo
from scheduler_svc.core.recovery.snapshot import SlotSnapshot, WorkerSnapshot
from scheduler_svc.core.request import Request, RequestKey
from scheduler_svc.core.slots.worker import Worker
from scheduler_svc.core.step.step import Start, StepDecision, StepReport
from signalbox.links.outbox import split
from signalbox.protocol.enums import SlotStatus
from signalbox.protocol.hash_chain import HASH_BYTES
from signalbox.v1 import generation_pb2, scheduler_pb2

MAX_AGE_MS = 24 * 3600 * 1000
"""Nobody has waited for longer."""
LATEST_MS = (1 << 63) - 1
U8, U16, U32, I32 = (np.dtype(code) for code in ("<u1", "<u2", "<u4", "<i4"))


def _pack(values: object, dtype: np.dtype[np.generic]) -> bytes:
    return np.asarray(values, dtype).tobytes()


def _column(raw: bytes, dtype: np.dtype[np.generic]) -> NDArray[np.int64]:
    return np.frombuffer(raw, dtype).astype(np.int64)


# -- down --


def build_messages(
    step: StepDecision, worker: Worker, epoch: int, max_bytes: int
) -> list[scheduler_pb2.AttachWorkerResponse]:
    """`step` and, ahead of it, the requests placed with it, which lose their payloads. Several messages when one would
    be larger than `max_bytes`; a request that is larger goes alone."""
    new_requests = [build_new_request(request, worker) for request in step.placed]
    for request in step.placed:
        request.payload = b""
    parts = list(split(new_requests, lambda request: request.ByteSize(), max_bytes))
    messages = [scheduler_pb2.AttachWorkerResponse(new_requests=part) for part in parts or [[]]]
    messages[-1].steps.append(build_step(step, epoch))
    return messages


def build_step(step: StepDecision, epoch: int) -> scheduler_pb2.SchedulerOutput:
    """`step` as a message. An absent group stays unset."""
    message = scheduler_pb2.SchedulerOutput(step_id=step.step_id, scheduler_epoch=epoch)
    if step.started:
        _pack_starts(message.scheduled_new_reqs, step.started)
    if len(step.grant_slots):
        message.scheduled_cached_reqs.new_block_slots = _pack(step.grant_slots, U16)
        message.scheduled_cached_reqs.new_block_ids = _pack(step.grant_blocks, U32)
    if step.chunks:
        slots, starts, lengths, _ = zip(*step.chunks, strict=True)
        message.scheduled_cached_reqs.chunk_slots = _pack(slots, U16)
        message.scheduled_cached_reqs.chunk_starts = _pack(starts, U32)
        message.scheduled_cached_reqs.chunk_lengths = _pack(lengths, U32)
    if step.resumed:
        _pack_starts(message.scheduled_cached_reqs.resumed, step.resumed)
    if step.copies:
        sources, targets = zip(*step.copies, strict=True)
        message.block_copies.source_block_ids = _pack(sources, U32)
        message.block_copies.target_block_ids = _pack(targets, U32)
    if step.fence is not None:
        sources, targets = zip(*step.fence.copies, strict=True) if step.fence.copies else ((), ())
        message.side_copies.source_block_ids = _pack(sources, U32)
        message.side_copies.target_block_ids = _pack(targets, U32)
        message.side_copies.fence = step.fence.fence_id
    if step.finished_slots:
        message.finished_slots = _pack(step.finished_slots, U16)
    if step.preempted_slots:
        message.preempted_slots = _pack(step.preempted_slots, U16)
    if step.paused_slots:
        message.paused_slots = _pack(step.paused_slots, U16)
    if step.unpaused_slots:
        message.unpaused_slots = _pack(step.unpaused_slots, U16)
    if step.is_solo:
        message.is_solo, message.aside_slots = True, _pack(step.aside_slots, U16)
    if step.draft_limits:
        slots, limits = zip(*step.draft_limits, strict=True)
        message.draft_slots, message.draft_limits = _pack(slots, U16), _pack(limits, U8)
    return message


def _pack_starts(message: scheduler_pb2.ScheduledNewReqs, starts: list[Start]) -> None:
    message.slots = _pack([start.chunk.slot for start in starts], U16)
    message.block_counts = _pack([len(start.blocks) for start in starts], U32)
    message.block_ids = _pack(np.concatenate([start.blocks for start in starts]), U32)
    message.num_computed_tokens = _pack([start.chunk.start for start in starts], U32)
    message.num_scheduled_tokens = _pack([start.chunk.length for start in starts], U32)


def build_new_request(request: Request, worker: Worker) -> scheduler_pb2.NewRequestData:
    """The request with its payload, for its worker; the caller then drops the payload."""
    assert request.slot is not None
    usable = request.hash_block_size == worker.info.block_size
    return scheduler_pb2.NewRequestData(
        slot=request.slot,
        ref=scheduler_pb2.RequestRef(request_id=request.key.request_id, attempt=request.attempt),
        frontend_instance=request.key.frontend_instance,
        chain_hash=(request.block_hashes[-HASH_BYTES:] or request.root_hash) if usable else b"",
        scheduler_meta=request.meta,
        payload=request.payload,
        traceparent=request.traceparent,
        tracestate=request.tracestate,
        max_tokens=int(worker.table.limit[request.slot]) - request.num_prompt_tokens,
        num_known_tokens=request.num_known_tokens,
        max_draft_tokens=int(worker.table.drafts[request.slot]),
        kind=generation_pb2.REQUEST_KIND_POOLING
        if request.is_pooling
        else generation_pb2.REQUEST_KIND_GENERATE,
    )


def build_loan(blocks: Blocks) -> scheduler_pb2.AttachWorkerResponse:
    """Blocks that a worker may use while it has no scheduler."""
    return scheduler_pb2.AttachWorkerResponse(loan=scheduler_pb2.BlockLoan(block_ids=_pack(blocks, U32)))


# -- up --


def parse_report(message: scheduler_pb2.ModelRunnerOutput) -> StepReport:
    """A worker's report, unpacked."""
    report = StepReport(message.step_id, message.num_decode_rows, message.num_prefill_tokens)
    if message.exception_slots:
        report.exception_slots = _column(message.exception_slots, U16)
        report.exception_counts = _column(message.exception_counts, U8)
    if message.decode_counts:
        report.decode_counts = np.frombuffer(message.decode_counts, np.uint8)
    if message.not_run_slots:
        slots, reasons = _column(message.not_run_slots, U16), _column(message.not_run_reasons, U8)
        report.not_run = list(zip(slots.tolist(), reasons.tolist(), strict=True))
    if message.finished_slots:
        slots, reasons = _column(message.finished_slots, U16), _column(message.finished_reasons, U8)
        counts = _column(message.finished_counts, U32)
        report.finished = list(zip(slots.tolist(), reasons.tolist(), counts.tolist(), strict=True))
    if message.sealed_slots:
        report.sealed_slots = _column(message.sealed_slots, U16)
        report.sealed_indexes = _column(message.sealed_indexes, U16)
        report.sealed_hashes = np.frombuffer(message.sealed_hashes, HASH_DTYPE)
    if message.draft_slots:
        slots, limits = _column(message.draft_slots, U16), _column(message.draft_limits, U8)
        report.draft_limits = list(zip(slots.tolist(), limits.tolist(), strict=True))
    if message.withdrawn_slots:
        report.withdrawn = _column(message.withdrawn_slots, U16).tolist()
    report.num_draft_tokens = message.num_draft_tokens
    report.num_accepted_tokens = message.num_accepted_tokens
    timings = message.timings
    report.execute_us, report.queued_us = timings.execute_us, timings.queued_us
    report.duration_us = timings.prepare_us + timings.execute_us + timings.commit_us
    return report


def parse_submit(message: scheduler_pb2.SubmitRequest, frontend_instance: str, wall_ms: int = 0) -> Request:
    """A frontend's request. The payload stays as it is. `wall_ms` is our own clock, Unix time in milliseconds: the
    request arrived that long ago as it is old, by a clock that every scheduler sees in `meta` and no frontend sets."""
    meta = message.meta
    meta.arrival_ms = max(wall_ms - min(meta.age_ms, MAX_AGE_MS), 0)
    meta.ClearField("age_ms")
    return _request(frontend_instance, message.ref, meta, meta.SerializeToString(), message.payload)


def parse_hello(
    message: scheduler_pb2.WorkerHello, wall_ms: int = LATEST_MS
) -> tuple[WorkerInfo, WorkerSnapshot | None]:
    """A worker's offer, and its state when it holds requests. None of these arrived later than `wall_ms`, our own
    clock."""
    if not message.HasField("snapshot"):
        return parse_offer(message), None
    snapshot = parse_snapshot(message.snapshot)
    snapshot.slots = parse_slots(message.snapshot.slots, wall_ms)
    return parse_offer(message), snapshot


def parse_offer(message: scheduler_pb2.WorkerHello) -> WorkerInfo:
    """What a worker says of itself."""
    return WorkerInfo(
        worker_id=message.worker_id,
        instance=message.worker_instance,
        address=message.address,
        model=message.model.model,
        num_slots=message.num_slots,
        num_blocks=message.num_blocks,
        block_size=message.model.block_size,
        max_model_len=message.model.max_model_len,
        max_num_batched_tokens=message.max_num_batched_tokens,
        max_draft_tokens=message.max_draft_tokens,
        num_host_blocks=message.num_host_blocks,
        # A worker that names no kinds generates.
        serves_generation=not message.kinds or generation_pb2.REQUEST_KIND_GENERATE in message.kinds,
        serves_pooling=generation_pb2.REQUEST_KIND_POOLING in message.kinds,
    )


def parse_snapshot(message: scheduler_pb2.WorkerSnapshot) -> WorkerSnapshot:
    """A worker's state, but for its slots."""
    return WorkerSnapshot(
        message.scheduler_epoch,
        message.last_step_id,
        [],
        message.scheduler_instance,
        message.last_scheduled_step_id,
        np.frombuffer(message.blocks_written_alone, U32).astype(np.int32),
    )


def parse_slots(
    messages: Iterable[scheduler_pb2.SlotSnapshot], wall_ms: int = LATEST_MS
) -> list[SlotSnapshot]:
    """Slots as their worker holds them; `wall_ms` as in `parse_hello`."""
    return [_parse_slot(message, wall_ms) for message in messages]


def _parse_slot(message: scheduler_pb2.SlotSnapshot, wall_ms: int) -> SlotSnapshot:
    meta = scheduler_pb2.RequestMeta.FromString(message.scheduler_meta)
    meta.arrival_ms = min(meta.arrival_ms, wall_ms)
    request = _request(message.frontend_instance, message.ref, meta, message.scheduler_meta, b"")
    return SlotSnapshot(
        slot=message.slot,
        request=request,
        status=SlotStatus(message.status),
        blocks=np.frombuffer(message.block_ids, U32).astype(np.int32),
        sealed_hashes=message.sealed_hashes,
        num_computed_tokens=message.num_computed_tokens,
        num_output_tokens=message.num_output_tokens,
        prefill_target=message.prefill_target,
        max_draft_tokens=message.max_draft_tokens,
        paused=message.paused,
        withdrawn=message.withdrawn,
    )


def _request(
    frontend_instance: str,
    ref: scheduler_pb2.RequestRef,
    meta: scheduler_pb2.RequestMeta,
    raw_meta: bytes,
    payload: bytes,
) -> Request:
    return Request(
        key=RequestKey(frontend_instance, ref.request_id),
        attempt=ref.attempt,
        model=meta.model,
        num_prompt_tokens=meta.num_prompt_tokens,
        num_prior_output_tokens=meta.num_prior_output_tokens,
        max_tokens=meta.max_tokens,
        arrival_ms=meta.arrival_ms,
        sequence=0,
        block_hashes=meta.block_hashes,
        root_hash=meta.root_hash,
        hash_block_size=meta.hash_block_size,
        priority=meta.priority,
        tenant=meta.tenant,
        wants_prompt_logprobs=meta.wants_prompt_logprobs,
        is_pooling=meta.kind == generation_pb2.REQUEST_KIND_POOLING,
        has_grammar=meta.has_grammar,
        num_crashes=meta.num_crashes,
        meta=raw_meta,
        payload=payload,
        traceparent=meta.traceparent,
        tracestate=meta.tracestate,
        num_losses=meta.num_losses,
    )
