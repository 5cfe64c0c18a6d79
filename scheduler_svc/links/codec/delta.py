"""Decisions as messages, and messages as reports. Columns are packed as signalbox/protocol/columns.py says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from scheduler_svc.core.parts.disk.loads import DISK
from scheduler_svc.core.parts.disk.stores import DiskOrders
from scheduler_svc.core.parts.handoff.orders import HandoffOrders
from scheduler_svc.core.parts.pulls.part import PULLS
from scheduler_svc.core.parts.pulls.pull import PullOrders
from scheduler_svc.core.recovery.snapshot import SlotSnapshot, WorkerSnapshot
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE, Blocks
from scheduler_svc.core.state.blocks.copy_group import BlockCopy
from scheduler_svc.core.state.requests.request import BlockNames, Request, RequestKey
from scheduler_svc.core.state.steps.fence import Fence
from scheduler_svc.core.state.steps.step import Start, StepDecision, StepReport
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.state.worker_info import WorkerInfo
from scheduler_svc.links.codec.disk import write_disk_orders, write_loads
from scheduler_svc.links.codec.handoff_columns import build_import, parse_other, write_handoffs
from scheduler_svc.links.codec.mask_account import mask_account
from scheduler_svc.links.codec.pull_columns import write_pull, write_pulls
from signalbox.links.outbox import split
from signalbox.protocol import columns
from signalbox.protocol.arrays import pack_blocks, read_arrays, unpack_blocks, write_arrays
from signalbox.protocol.block_groups import SPINE, BlockGroup, StateGroup
from signalbox.protocol.enums import SlotStatus, WorkerRole
from signalbox.protocol.hash_chain import HASH_BYTES
from signalbox.protocol.model_identity import ModelIdentity
from signalbox.protocol.parts import lanes
from signalbox.protocol.step_limits import STEP_TIMEOUT_S
from signalbox.v1 import from_frontend_pb2, from_worker_pb2, generation_pb2, shared_pb2, to_worker_pb2

MAX_AGE_MS = 24 * 3600 * 1000
"""Nobody has waited for longer."""
LATEST_MS = (1 << 63) - 1

# -- down --


def build_messages(
    step: StepDecision, worker: Worker, epoch: int, max_bytes: int
) -> list[to_worker_pb2.AttachWorkerResponse]:
    """`step` and, ahead of it, the requests placed with it, which lose their payloads. Several messages when one would
    be larger than `max_bytes`; a request that is larger goes alone."""
    messages = _build_requests(step, worker, max_bytes) if step.placed or step.orders else []
    if not messages:
        messages.append(to_worker_pb2.AttachWorkerResponse())
    _write_step(messages[-1].steps.add(), step, epoch)
    return messages


def _build_requests(
    step: StepDecision, worker: Worker, max_bytes: int
) -> list[to_worker_pb2.AttachWorkerResponse]:
    new_requests = [build_new_request(request, worker) for request in step.placed]
    handoffs = step.ordered(HandoffOrders)
    if handoffs is not None:
        new_requests += map(build_import, handoffs.arriving)
    for request in step.placed:
        request.payload = b""
    parts = split(new_requests, lambda request: request.ByteSize(), max_bytes)
    return [to_worker_pb2.AttachWorkerResponse(new_requests=part) for part in parts]


def build_step(step: StepDecision, epoch: int) -> to_worker_pb2.SchedulerOutput:
    """`step` as a message. An absent group stays unset."""
    message = to_worker_pb2.SchedulerOutput()
    _write_step(message, step, epoch)
    return message


def _write_step(message: to_worker_pb2.SchedulerOutput, step: StepDecision, epoch: int) -> None:
    message.step_id, message.scheduler_epoch = step.step_id, epoch
    if step.limit_s:
        message.limit_ms = int(step.limit_s * 1e3)
    if step.may_be_skipped:
        message.may_be_skipped = True
    if len(step.grant_slots):
        write_arrays(message.scheduled_cached_reqs, columns.GRANTS, step.grant_slots, step.grant_blocks)
        if step.grant_groups is not None:
            message.scheduled_cached_reqs.new_block_groups = step.grant_groups.tobytes()
    if step.copies:
        _write_block_copies(message.block_copies, step.copies)
    if step.is_solo:
        message.is_solo, message.aside_slots = True, columns.pack(step.aside_slots, columns.U16)
    if step.names_slots:
        _write_changes(message, step)


def _write_changes(message: to_worker_pb2.SchedulerOutput, step: StepDecision) -> None:
    """What a step that only decodes has not."""
    if step.started:
        _write_starts(message.scheduled_new_reqs, step.started)
    if step.chunks:
        columns.CHUNKS.write(message.scheduled_cached_reqs, step.chunks)
    if step.resumed:
        _write_starts(message.scheduled_cached_reqs.resumed, step.resumed)
    for name in ("finished_slots", "preempted_slots", "paused_slots", "unpaused_slots"):
        if slots := getattr(step, name):
            setattr(message, name, columns.pack(slots, columns.U16))
    if step.draft_limits:
        columns.DRAFTS.write(message, step.draft_limits)
    if step.checkpoints:
        columns.CHECKPOINTS.write(message.checkpoints, step.checkpoints)
    if step.fence is not None:
        message.side_copies.fence = step.fence.fence_id
        if step.fence.copies:
            _write_block_copies(message.side_copies, step.fence.copies)
    if step.fetch is not None:
        WRITE_FETCH[step.fetch.source](message, step.fetch)
    for kind, orders in step.orders.items():
        WRITE_ORDERS[kind](message, orders)


WRITE_ORDERS: dict[type[Any], Callable[[to_worker_pb2.SchedulerOutput, Any], None]] = {
    lanes.LaneOrders: lanes.write,
    HandoffOrders: write_handoffs,
    DiskOrders: write_disk_orders,
    PullOrders: write_pulls,
}
"""By type of the orders of a part."""
WRITE_FETCH: dict[str, Callable[[to_worker_pb2.SchedulerOutput, Fence], None]] = {
    DISK: write_loads,
    PULLS: write_pull,
}
"""By name of a source."""


def _write_block_copies(message: to_worker_pb2.BlockCopies, copies: list[BlockCopy]) -> None:
    columns.COPIES.write(message, copies)
    if any(copy.group != SPINE for copy in copies):
        message.groups = columns.pack([copy.group for copy in copies], columns.U8)


def _write_starts(message: to_worker_pb2.ScheduledNewReqs, starts: list[Start]) -> None:
    rows = [(start.chunk.slot, len(start.blocks), start.chunk.start, start.chunk.length) for start in starts]
    columns.STARTS.write(message, rows)
    message.block_ids = pack_blocks(np.concatenate([start.blocks for start in starts]))
    checkpoints = [start.checkpoint + 1 for start in starts]
    if any(checkpoints):
        message.from_checkpoints = columns.pack(checkpoints, columns.U32)
    for tables in zip(*(start.windows for start in starts), strict=True):
        group = message.groups.add()
        columns.GROUP_STARTS.write(group, [(first, len(blocks)) for first, blocks in tables])
        group.block_ids = pack_blocks(np.concatenate([blocks for _, blocks in tables]))


def build_new_request(request: Request, worker: Worker) -> to_worker_pb2.NewRequestData:
    """The request with its payload, for its worker; the caller then drops the payload."""
    assert request.slot is not None
    names = worker.names_of(request)
    return to_worker_pb2.NewRequestData(
        slot=request.slot,
        ref=shared_pb2.RequestRef(request_id=request.key.request_id, attempt=request.attempt),
        frontend_instance=request.key.frontend_instance,
        chain_hash=names.hashes[-HASH_BYTES:] or names.root,
        scheduler_meta=request.meta,
        payload=request.payload,
        traceparent=request.traceparent,
        tracestate=request.tracestate,
        max_tokens=int(worker.table.limit[request.slot]) - request.num_prompt_tokens,
        num_known_tokens=request.num_known_tokens,
        max_draft_tokens=int(worker.table.drafts[request.slot]),
        account=mask_account(request),
        kind=generation_pb2.REQUEST_KIND_POOLING
        if request.is_pooling
        else generation_pb2.REQUEST_KIND_GENERATE,
    )


def build_loan(blocks: Sequence[Blocks]) -> to_worker_pb2.AttachWorkerResponse:
    """Blocks of each group that a worker may use while it has no scheduler."""
    spine, *others = map(pack_blocks, blocks)
    groups = [shared_pb2.GroupBlocks(block_ids=block_ids) for block_ids in others]
    return to_worker_pb2.AttachWorkerResponse(loan=to_worker_pb2.BlockLoan(block_ids=spine, groups=groups))


# -- up --


def parse_report(message: from_worker_pb2.ModelRunnerOutput) -> StepReport:
    """The report of a worker's message."""
    report = StepReport(message.step_id, message.num_decode_rows, message.num_prefill_tokens)
    if message.exception_slots:
        report.exception_slots, report.exception_counts = read_arrays(message, columns.EXCEPTIONS)
    if message.decode_counts:
        report.decode_counts = np.frombuffer(message.decode_counts, np.uint8)
    if message.not_run_slots:
        report.not_run = columns.NOT_RUN.read(message)
    if message.finished_slots:
        report.finished = columns.FINISHED.read(message)
    if message.sealed_slots:
        report.sealed_slots, report.sealed_indexes = read_arrays(message, columns.SEALED)
        report.sealed_hashes = np.frombuffer(message.sealed_hashes, HASH_DTYPE)
    if message.draft_slots:
        report.draft_limits = columns.DRAFTS.read(message)
    if message.withdrawn_slots:
        report.withdrawn = columns.unpack(message.withdrawn_slots, columns.U16)
    if message.checkpoint_positions:
        report.checkpoint_positions = columns.unpack(message.checkpoint_positions, columns.U32)
    if message.mask_slots:
        report.mask_us = columns.MASKS.read(message)
    report.num_draft_tokens = message.num_draft_tokens
    report.num_accepted_tokens = message.num_accepted_tokens
    timings = message.timings
    report.execute_us, report.queued_us = timings.execute_us, timings.queued_us
    report.duration_us = timings.prepare_us + timings.execute_us + timings.commit_us
    return report


def parse_submit(
    message: from_frontend_pb2.SubmitRequest, frontend_instance: str, wall_ms: int = 0
) -> Request:
    """A frontend's request. The payload stays as it is. `wall_ms` is our own clock, Unix time in milliseconds: the
    request arrived that long ago as it is old, by a clock that every scheduler sees in `meta` and no frontend sets."""
    meta = message.meta
    meta.arrival_ms = max(wall_ms - min(meta.age_ms, MAX_AGE_MS), 0)
    meta.ClearField("age_ms")
    return _request(frontend_instance, message.ref, meta, meta.SerializeToString(), message.payload)


def parse_hello(
    message: from_worker_pb2.WorkerHello, wall_ms: int = LATEST_MS
) -> tuple[WorkerInfo, WorkerSnapshot | None]:
    """A worker's offer, and its state when it holds requests. None of these arrived later than `wall_ms`, our own
    clock."""
    if not message.HasField("snapshot"):
        return parse_offer(message), None
    snapshot = parse_snapshot(message.snapshot)
    snapshot.slots = parse_slots(message.snapshot.slots, wall_ms)
    return parse_offer(message), snapshot


def parse_offer(message: from_worker_pb2.WorkerHello) -> WorkerInfo:
    """What a worker says of itself."""
    identity, states = message.model.identity, message.state_group
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
        num_host_blocks=message.num_host_blocks or message.num_spine_host_blocks,
        # A worker that names no kinds generates.
        serves_generation=not message.kinds or generation_pb2.REQUEST_KIND_GENERATE in message.kinds,
        serves_pooling=generation_pb2.REQUEST_KIND_POOLING in message.kinds,
        identity=ModelIdentity(identity.weights, identity.form, identity.number_class),
        reuses_blocks=not message.reuses_no_blocks or message.HasField("state_group"),
        groups=tuple(
            BlockGroup(each.kind, each.reach, each.num_blocks, each.bytes_per_block, each.num_host_blocks)
            for each in message.groups
        ),
        state_group=StateGroup(
            states.boundary,
            states.num_checkpoints,
            states.bytes_per_checkpoint,
            states.prompts_only,
            states.num_host_checkpoints,
        )
        if message.HasField("state_group")
        else None,
        kv_layout=message.kv_layout,
        num_ranks=message.num_ranks or 1,
        num_lanes=message.num_lanes or 1,
        step_timeout_s=message.step_timeout_ms / 1e3 or STEP_TIMEOUT_S,
        pulls_blocks=message.pulls_blocks,
        # A role that is not known here, or unset: both.
        role=WorkerRole(message.role) if int(message.role) in set(WorkerRole) else WorkerRole.BOTH,
    )


def parse_snapshot(message: from_worker_pb2.WorkerSnapshot) -> WorkerSnapshot:
    """A worker's state, but for its slots."""
    return WorkerSnapshot(
        message.scheduler_epoch,
        message.last_step_id,
        [],
        message.scheduler_instance,
        message.last_scheduled_step_id,
        unpack_blocks(message.blocks_written_alone),
        groups_written_alone=[unpack_blocks(each.block_ids) for each in message.groups_written_alone],
    )


def parse_slots(
    messages: Iterable[from_worker_pb2.SlotSnapshot], wall_ms: int = LATEST_MS
) -> list[SlotSnapshot]:
    """Slots as their worker holds them; `wall_ms` as in `parse_hello`."""
    return [_parse_slot(message, wall_ms) for message in messages]


def _parse_slot(message: from_worker_pb2.SlotSnapshot, wall_ms: int) -> SlotSnapshot:
    meta = from_frontend_pb2.RequestMeta.FromString(message.scheduler_meta)
    meta.arrival_ms = min(meta.arrival_ms, wall_ms)
    request = _request(message.frontend_instance, message.ref, meta, message.scheduler_meta, b"")
    return SlotSnapshot(
        slot=message.slot,
        request=request,
        status=SlotStatus(message.status),
        blocks=unpack_blocks(message.block_ids),
        sealed_hashes=message.sealed_hashes,
        num_computed_tokens=message.num_computed_tokens,
        num_output_tokens=message.num_output_tokens,
        prefill_target=message.prefill_target,
        max_draft_tokens=message.max_draft_tokens,
        paused=message.paused,
        group_tables=tuple((each.first, unpack_blocks(each.block_ids)) for each in message.group_tables),
        withdrawn=message.withdrawn,
        leg=message.leg,
        transfer=message.transfer.transfer,
        other=parse_other(message),
        frozen_status=SlotStatus(message.frozen_status or SlotStatus.ENDED),
        lane=message.lane,
    )


def _request(
    frontend_instance: str,
    ref: shared_pb2.RequestRef,
    meta: from_frontend_pb2.RequestMeta,
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
        identity=meta.identity,
        other_names=tuple(
            BlockNames(names.identity, names.root_hash, names.block_hashes) for names in meta.other_names
        ),
        output_identity=meta.output_identity,
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
