"""What messages say of requests that go from one worker to another."""

from __future__ import annotations

from signalbox.protocol import columns
from signalbox.v1 import from_worker_pb2, shared_pb2, to_worker_pb2
from worker_svc.core.handoff.imports import Import, ImportRequest
from worker_svc.core.handoff.orders import ExportOrder, HandoffOrders, ImportStart, WorkerName
from worker_svc.core.requests.request_state import RequestTable
from worker_svc.core.step import Failure, RequestRef
from worker_svc.links.step_columns import parse_tables

MAX_NAME_CHARS = 256
"""Names of workers and their addresses; longer ones are nobody's."""
MAX_KEY_BYTES = 256


def parse_handoffs(message: to_worker_pb2.Handoffs) -> HandoffOrders:
    """The orders of a step. ValueError when its columns do not fit each other."""
    committed = columns.unpack(message.committed_slots, columns.U16)
    legs = columns.unpack(message.committed_legs, columns.U32)
    if len(legs) not in (0, len(committed)):
        raise ValueError("committed_slots and committed_legs differ in length")
    return HandoffOrders(
        kept_slots=columns.unpack(message.kept_slots, columns.U16),
        thawed=[(slot, leg) for slot, leg in columns.THAWED.read(message)],
        exports=_parse_exports(message),
        frozen_slots=columns.unpack(message.frozen_slots, columns.U16),
        import_starts=_parse_starts(message.import_starts),
        committed_slots=committed,
        committed_legs=legs,
    )


def _parse_exports(message: to_worker_pb2.Handoffs) -> list[ExportOrder]:
    rows = columns.EXPORTS.read(message)
    if not len(rows) == len(message.export_targets) == len(message.export_keys):
        raise ValueError("export_slots, export_targets and export_keys differ in length")
    return [
        ExportOrder(slot, transfer, parse_worker(target), key)
        for (slot, transfer), target, key in zip(
            rows, message.export_targets, message.export_keys, strict=True
        )
    ]


def _parse_starts(message: to_worker_pb2.ImportStarts) -> list[ImportStart]:
    rows = columns.IMPORT_STARTS.read(message)
    tables, groups = parse_tables(message, [count for _, count, _ in rows])
    if not rows:
        return []
    return [
        ImportStart(slot, table, num_found, tuple(group[row] for group in groups))
        for row, ((slot, _, num_found), table) in enumerate(zip(rows, tables, strict=True))
    ]


def parse_worker(message: shared_pb2.WorkerRef) -> WorkerName:
    """The name of a worker process."""
    return WorkerName(message.worker_id, message.worker_instance)


def build_worker(name: WorkerName) -> shared_pb2.WorkerRef:
    """The name of a worker process."""
    return shared_pb2.WorkerRef(worker_id=name.worker_id, worker_instance=name.instance)


def misfit_of_source(source: to_worker_pb2.ImportFrom) -> str | None:
    """Why no request can be taken over from there; None: one can."""
    names = (source.source.worker_id, source.source.worker_instance, source.address)
    if not all(names) or any(len(name) > MAX_NAME_CHARS for name in names):
        return "a request is to come from a worker without a name, or an address"
    if not 0 < len(source.key) <= MAX_KEY_BYTES:
        return f"a request is to come under a key of {len(source.key)} bytes"
    return None


def parse_import(message: to_worker_pb2.NewRequestData) -> ImportRequest:
    """A request that another worker has."""
    origin = message.import_from
    return ImportRequest(
        message.slot,
        RequestRef(message.ref.request_id, message.ref.attempt, message.frontend_instance),
        origin.transfer,
        origin.key,
        parse_worker(origin.source),
        origin.address,
        message.leg,
        message.scheduler_meta,
    )


def build_import_ready(found: Import) -> from_worker_pb2.WorkerEvent:
    """An import that may be frozen where it runs, as an event."""
    ready = from_worker_pb2.ImportReady(slot=found.slot, transfer=found.request.transfer)
    return from_worker_pb2.WorkerEvent(import_ready=ready)


def build_import_ended(table: RequestTable, found: Import) -> from_worker_pb2.WorkerEvent:
    """An import of which all is here, as an event."""
    slot = found.slot
    ended = from_worker_pb2.ImportEnded(
        slot=slot,
        transfer=found.request.transfer,
        num_computed_tokens=int(table.num_computed[slot]),
        num_output_tokens=table.num_output(slot),
        sealed_hashes=b"".join(table.sealed[slot]),
    )
    return from_worker_pb2.WorkerEvent(import_ended=ended)


def build_import_failed(found: Import, failure: Failure) -> from_worker_pb2.WorkerEvent:
    """An import that never ends, as an event."""
    ended = from_worker_pb2.ImportEnded(slot=found.slot, transfer=found.request.transfer)
    ended.error.code, ended.error.message, ended.error.field = failure.code, failure.message, failure.field
    return from_worker_pb2.WorkerEvent(import_ended=ended)
