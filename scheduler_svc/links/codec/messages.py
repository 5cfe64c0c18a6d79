"""What frontends are told, as messages."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler_svc.core.cluster.term import Term
from scheduler_svc.core.state.requests.notices import Lost, Notice, OutputsLost, Placed
from scheduler_svc.core.state.worker import Worker
from signalbox.v1 import shared_pb2, to_frontend_pb2


def build_entry(worker: Worker, model: shared_pb2.ModelEntry) -> to_frontend_pb2.WorkerEntry:
    """A line of the directory."""
    info = worker.info
    entry = to_frontend_pb2.WorkerEntry(
        worker_id=info.worker_id, worker_instance=info.instance, address=info.address
    )
    entry.model.CopyFrom(model)
    entry.model.max_model_len = entry.model.max_request_tokens = worker.limits.max_model_len
    return entry


def build_directory(
    workers: Iterable[tuple[Worker, shared_pb2.ModelEntry]], term: Term
) -> to_frontend_pb2.AttachFrontendResponse:
    """All that have a link, and who leads."""
    entries = [build_entry(worker, model) for worker, model in workers]
    return to_frontend_pb2.AttachFrontendResponse(
        workers=to_frontend_pb2.WorkerDirectory(workers=entries),
        scheduler_epoch=term.number,
        scheduler_instance=term.instance,
    )


def build_notice(notice: Notice) -> to_frontend_pb2.AttachFrontendResponse:
    """What a frontend has to know."""
    message = to_frontend_pb2.AttachFrontendResponse()
    if isinstance(notice, OutputsLost):
        message.outputs_lost.add(worker_id=notice.worker_id, worker_instance=notice.worker_instance)
        return message
    ref = shared_pb2.RequestRef(request_id=notice.key.request_id, attempt=notice.attempt)
    if isinstance(notice, Placed):
        message.placed.add(
            ref=ref,
            worker_id=notice.worker_id,
            num_cached_tokens=notice.num_cached_tokens,
            leg=notice.leg,
        )
        message.told = notice.word
    elif isinstance(notice, Lost):
        message.lost.add(ref=ref, reason=notice.reason, cause=notice.cause.value)
    else:
        rejected = message.rejected.add(ref=ref)
        rejected.error.code, rejected.error.message, rejected.error.field = (
            notice.code,
            notice.message,
            notice.field,
        )
        rejected.error.retry_after_ms = int((notice.retry_after_s or 0.0) * 1e3)
    return message
