"""Orders and events of hand-offs, as messages."""

from __future__ import annotations

from scheduler_svc.core.parts.handoff.commit import Arrived
from scheduler_svc.core.parts.handoff.orders import HandoffOrders, ImportStart
from scheduler_svc.core.parts.handoff.typed import Handoff
from scheduler_svc.core.state.requests.evidence import Process
from scheduler_svc.links.codec.mask_account import mask_account
from signalbox.protocol.parts import handoff, import_start
from signalbox.protocol.parts.names import WorkerName
from signalbox.v1 import from_worker_pb2, generation_pb2, shared_pb2, to_worker_pb2


def write_handoffs(message: to_worker_pb2.SchedulerOutput, orders: HandoffOrders) -> None:
    """The orders of a step."""
    exports = [
        handoff.ExportOrder(each.source_slot, each.transfer, WorkerName(*each.target_process), each.key)
        for each in orders.exports
    ]
    handoff.write(
        message,
        handoff.HandoffOrders(
            kept_slots=orders.kept_slots,
            thawed=orders.thawed,
            exports=exports,
            frozen_slots=orders.frozen_slots,
            import_starts=[_import_start(start) for start in orders.import_starts],
            committed_slots=[slot for slot, _ in orders.committed],
            committed_legs=[leg for _, leg in orders.committed],
        ),
    )


def _import_start(start: ImportStart) -> import_start.ImportStart:
    windows = tuple((first, blocks.tolist()) for first, blocks in start.windows)
    return import_start.ImportStart(start.slot, start.blocks.tolist(), start.num_found, windows)


def build_import(arriving: Handoff) -> to_worker_pb2.NewRequestData:
    """A request that its worker is to take over: what it has of it comes from the source."""
    request, target = arriving.request, arriving.target
    source = arriving.source.info
    return to_worker_pb2.NewRequestData(
        slot=arriving.target_slot,
        ref=shared_pb2.RequestRef(request_id=request.key.request_id, attempt=request.attempt),
        frontend_instance=request.key.frontend_instance,
        scheduler_meta=request.meta,
        traceparent=request.traceparent,
        tracestate=request.tracestate,
        max_tokens=int(target.table.limit[arriving.target_slot]) - request.num_prompt_tokens,
        max_draft_tokens=int(target.table.drafts[arriving.target_slot]),
        kind=generation_pb2.REQUEST_KIND_GENERATE,
        import_from=to_worker_pb2.ImportFrom(
            transfer=arriving.transfer,
            key=arriving.key,
            source=build_worker(arriving.source_process),
            address=source.address,
        ),
        leg=arriving.leg,
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
