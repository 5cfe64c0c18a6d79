"""Requests that go from one worker to another: requests that arrive, and events, as messages."""

from __future__ import annotations

from signalbox.protocol.enums import ReadFault
from signalbox.protocol.parts.names import MAX_KEY_BYTES, WorkerName, are_valid, read_worker
from signalbox.v1 import from_worker_pb2, shared_pb2, to_worker_pb2
from worker_svc.core.handoff.imports import Import, ImportRequest
from worker_svc.core.requests.request_state import RequestTable
from worker_svc.core.step import Failure, RequestRef


def build_worker(name: WorkerName) -> shared_pb2.WorkerRef:
    """The name of a worker process."""
    return shared_pb2.WorkerRef(worker_id=name.worker_id, worker_instance=name.instance)


def misfit_of_source(source: to_worker_pb2.ImportFrom) -> str | None:
    """Why no request can be taken over from there; None: one can."""
    if not are_valid(source.source.worker_id, source.source.worker_instance, source.address):
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
        read_worker(origin.source),
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


def build_import_failed(found: Import, failure: Failure, fault: ReadFault) -> from_worker_pb2.WorkerEvent:
    """An import that never ends, as an event."""
    transfer = found.request.transfer
    ended = from_worker_pb2.ImportEnded(slot=found.slot, transfer=transfer, fault=fault)  # type: ignore[arg-type]
    ended.error.code, ended.error.message, ended.error.field = failure.code, failure.message, failure.field
    return from_worker_pb2.WorkerEvent(import_ended=ended)
