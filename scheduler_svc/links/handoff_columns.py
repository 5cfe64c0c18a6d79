"""What a step says of hand-offs, as a message, and what workers say of them."""

from __future__ import annotations

import numpy as np

from scheduler_svc.core.parts.handoff.commit import Arrived
from scheduler_svc.core.parts.handoff.orders import HandoffOrders, ImportStart
from scheduler_svc.core.parts.handoff.typed import Handoff
from scheduler_svc.core.state.requests.evidence import Process
from scheduler_svc.links.mask_account import mask_account
from signalbox.protocol import columns
from signalbox.protocol.arrays import pack_blocks
from signalbox.v1 import from_worker_pb2, generation_pb2, shared_pb2, to_worker_pb2


def write_handoffs(step: to_worker_pb2.SchedulerOutput, orders: HandoffOrders) -> None:
    """The orders of a step. An absent column stays unset."""
    message = step.handoffs
    if orders.import_starts:
        _write_starts(message.import_starts, orders.import_starts)
    if orders.committed:
        columns.COMMITTED.write(message, orders.committed)
    if orders.exports:
        columns.EXPORTS.write(message, [(each.source_slot, each.transfer) for each in orders.exports])
        message.export_targets.extend(build_worker(each.target_process) for each in orders.exports)
        message.export_keys.extend(each.key for each in orders.exports)
    if orders.kept_slots:
        message.kept_slots = columns.pack(orders.kept_slots, columns.U16)
    if orders.frozen_slots:
        message.frozen_slots = columns.pack(orders.frozen_slots, columns.U16)
    if orders.thawed:
        columns.THAWED.write(message, orders.thawed)


def _write_starts(message: to_worker_pb2.ImportStarts, starts: list[ImportStart]) -> None:
    rows = [(start.slot, len(start.blocks), start.num_found) for start in starts]
    columns.IMPORT_STARTS.write(message, rows)
    message.block_ids = pack_blocks(np.concatenate([start.blocks for start in starts]))
    for tables in zip(*(start.windows for start in starts), strict=True):
        group = message.groups.add()
        columns.GROUP_STARTS.write(group, [(first, len(blocks)) for first, blocks in tables])
        group.block_ids = pack_blocks(np.concatenate([blocks for _, blocks in tables]))


def build_import(handoff: Handoff) -> to_worker_pb2.NewRequestData:
    """A request that its worker is to take over: what it has of it comes from the source."""
    request, target = handoff.request, handoff.target
    source = handoff.source.info
    return to_worker_pb2.NewRequestData(
        slot=handoff.target_slot,
        ref=shared_pb2.RequestRef(request_id=request.key.request_id, attempt=request.attempt),
        frontend_instance=request.key.frontend_instance,
        scheduler_meta=request.meta,
        traceparent=request.traceparent,
        tracestate=request.tracestate,
        max_tokens=int(target.table.limit[handoff.target_slot]) - request.num_prompt_tokens,
        max_draft_tokens=int(target.table.drafts[handoff.target_slot]),
        kind=generation_pb2.REQUEST_KIND_GENERATE,
        import_from=to_worker_pb2.ImportFrom(
            transfer=handoff.transfer,
            key=handoff.key,
            source=build_worker(handoff.source_process),
            address=source.address,
        ),
        leg=handoff.leg,
        account=mask_account(request),
    )


def build_worker(process: Process) -> shared_pb2.WorkerRef:
    """The name of a worker process."""
    return shared_pb2.WorkerRef(worker_id=process.worker_id, worker_instance=process.instance)


def parse_arrived(message: from_worker_pb2.ImportEnded) -> Arrived:
    """What a target has of a request, all of which has come."""
    return Arrived(message.num_computed_tokens, message.num_output_tokens, message.sealed_hashes)


def parse_other(message: from_worker_pb2.SlotSnapshot) -> Process | None:
    """The worker at the other end of a slot's transfer; None: it has none."""
    if not message.transfer.other.worker_id:
        return None
    return Process(message.transfer.other.worker_id, message.transfer.other.worker_instance)
