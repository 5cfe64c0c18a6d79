"""What a scheduler that means harm says to workers, relays and frontends: each is wrong by itself."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from signalbox.v1 import scheduler_pb2, shared_pb2, to_frontend_pb2, to_worker_pb2
from signalbox.v1.scheduler_pb2 import AttachWorkersResponse
from signalbox.v1.shared_pb2 import RequestRef
from signalbox.v1.to_frontend_pb2 import AttachFrontendResponse
from signalbox.v1.to_worker_pb2 import AttachWorkerResponse, BlockLoan, NewRequestData

NO_MESSAGE = b"\xff\xff\xff"
HIGHEST = 2**64 - 1


def u16(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}H", *values)


def u32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def step(term: int, number: int, **fields: Any) -> AttachWorkerResponse:
    """In its turn, unless the fields say otherwise."""
    values = {"step_id": number, "scheduler_epoch": term} | fields
    return AttachWorkerResponse(steps=[to_worker_pb2.SchedulerOutput(**values)])


def cached(**fields: bytes) -> dict[str, Any]:
    return {"scheduled_cached_reqs": to_worker_pb2.CachedRequestData(**fields)}


def starts(*slots: int, counts: bytes, blocks: bytes, at: bytes, lengths: bytes) -> dict[str, Any]:
    fields = {"block_counts": counts, "block_ids": blocks}
    fields |= {"num_computed_tokens": at, "num_scheduled_tokens": lengths}
    return {"scheduled_new_reqs": to_worker_pb2.ScheduledNewReqs(slots=u16(*slots), **fields)}


def copies(source: int, target: int, fence: int = 0) -> to_worker_pb2.BlockCopies:
    return to_worker_pb2.BlockCopies(source_block_ids=u32(source), target_block_ids=u32(target), fence=fence)


def request(**fields: Any) -> AttachWorkerResponse:
    values: dict[str, Any] = {"slot": 60, "ref": RequestRef(request_id="evil", attempt=7)} | fields
    return AttachWorkerResponse(new_requests=[NewRequestData(**values)])


FREE = 77
"""A slot that the tests' few requests never reach."""
TO_WORKERS: dict[str, Callable[[int, int], AttachWorkerResponse]] = {
    "a slot that is none": lambda term, number: step(term, number, finished_slots=u16(65535)),
    "half a slot": lambda term, number: step(term, number, preempted_slots=b"\x01"),
    "a free slot preempted": lambda term, number: step(term, number, preempted_slots=u16(FREE)),
    "a pause of no slot": lambda term, number: step(term, number, aside_slots=u16(40_000)),
    "drafts for no slot": lambda term, number: step(
        term, number, draft_slots=u16(50_000), draft_limits=b"\x01"
    ),
    "columns that differ": lambda term, number: step(
        term, number, **cached(new_block_slots=u16(0, 1), new_block_ids=u32(3))
    ),
    "blocks for nobody": lambda term, number: step(term, number, **cached(new_block_ids=u32(3, 4))),
    "a block below 0": lambda term, number: step(
        term, number, **cached(new_block_slots=u16(0), new_block_ids=u32(2**32 - 1))
    ),
    "a block that is none": lambda term, number: step(
        term, number, **cached(new_block_slots=u16(0), new_block_ids=u32(10**6))
    ),
    "a block for a free slot": lambda term, number: step(
        term, number, **cached(new_block_slots=u16(FREE), new_block_ids=u32(5))
    ),
    "more blocks than a table has": lambda term, number: step(
        term, number, **cached(new_block_slots=u16(0) * 9000, new_block_ids=u32(5) * 9000)
    ),
    "an empty chunk": lambda term, number: step(
        term, number, **cached(chunk_slots=u16(0), chunk_starts=u32(0), chunk_lengths=u32(0))
    ),
    "a huge chunk": lambda term, number: step(
        term, number, **cached(chunk_slots=u16(0), chunk_starts=u32(0), chunk_lengths=u32(2**32 - 1))
    ),
    "a slot that runs twice": lambda term, number: step(
        term, number, **cached(chunk_slots=u16(0, 0), chunk_starts=u32(0, 0), chunk_lengths=u32(1, 1))
    ),
    "a start of a free slot": lambda term, number: step(
        term, number, **starts(FREE, counts=u32(1), blocks=u32(1), at=u32(0), lengths=u32(1))
    ),
    "a start with a huge count": lambda term, number: step(
        term, number, **starts(0, counts=u32(2**32 - 1), blocks=u32(1), at=u32(0), lengths=u32(1))
    ),
    "starts without counts": lambda term, number: step(
        term, number, **starts(0, 1, counts=b"", blocks=b"", at=u32(0), lengths=u32(1))
    ),
    "a copy of no block": lambda term, number: step(term, number, block_copies=copies(10**6, 1)),
    "a copy to no host": lambda term, number: step(
        term, number, side_copies=copies(1, 2**31 + 10**6, fence=9)
    ),
    "a step that goes back": lambda term, number: step(term, 1),
    "a step ahead of its time": lambda term, number: step(term, HIGHEST),
    "a term that nobody can have": lambda term, number: step(HIGHEST, number),
    "a term of the past": lambda term, number: step(0, number),
    "a request for no slot": lambda term, number: request(slot=2**32 - 1),
    "a request with half a hash": lambda term, number: request(chain_hash=b"half"),
    "a request nobody can read": lambda term, number: request(scheduler_meta=NO_MESSAGE),
    "a request with too many drafts": lambda term, number: request(max_draft_tokens=2**32 - 1),
    "a loan of half a block": lambda term, number: AttachWorkerResponse(loan=BlockLoan(block_ids=b"\x01")),
}
"""By name; `(term, id of the next step)` to the message. Each is refused, whatever the worker does meanwhile."""

ODD_ADDRESSES = ("", "127.0.0.1:1", "host:99999", "unix:///nowhere", "\x00", "w" * 70_000, "dns:///", "é\n")


def odd_directory(directory: to_frontend_pb2.WorkerDirectory, own: str) -> to_frontend_pb2.WorkerDirectory:
    """The true entries, and others that point nowhere, or at the frontend itself (`own`)."""
    odd = to_frontend_pb2.WorkerDirectory()
    odd.CopyFrom(directory)
    for number, address in enumerate((own, *ODD_ADDRESSES)):
        odd.workers.add(
            worker_id=f"odd-{number}", worker_instance=f"odd-{number}", address=address
        ).model.model = "odd"
    odd.workers.add()
    return odd


TO_FRONTENDS: dict[str, AttachFrontendResponse] = {
    "a loss of nobody": AttachFrontendResponse(lost=[to_frontend_pb2.RequestLost()]),
    "a cause that is none": AttachFrontendResponse(
        lost=[to_frontend_pb2.RequestLost(ref=RequestRef(attempt=number), cause=99) for number in range(1, 9)]  # type: ignore[arg-type]
    ),
    "a refusal of nobody": AttachFrontendResponse(rejected=[to_frontend_pb2.RequestRejected()]),
    "outputs lost nowhere": AttachFrontendResponse(outputs_lost=[shared_pb2.WorkerRef(worker_id="x")]),
    "placements nowhere": AttachFrontendResponse(
        placed=[
            to_frontend_pb2.RequestPlaced(
                ref=RequestRef(attempt=number), worker_id="nowhere", num_cached_tokens=2**32 - 1
            )
            for number in range(1, 400)
        ]
    ),
}

TO_RELAYS: dict[str, AttachWorkersResponse] = {
    "an entry of nothing": AttachWorkersResponse(entries=[scheduler_pb2.RelayedResponse(link=1)]),
    "links that are none": AttachWorkersResponse(
        entries=[scheduler_pb2.RelayedResponse(link=number, message=b"") for number in (0, 10**6, 2**32 - 1)]
    ),
}


def to_all_links(message: bytes = b"", **error: str) -> AttachWorkersResponse:
    """The same to each of the first links of a relay: a message, or the end with an error."""
    if not error:
        entries = [scheduler_pb2.RelayedResponse(link=number, message=message) for number in range(1, 100)]
    else:
        closed = scheduler_pb2.LinkClosed()
        for name, value in error.items():
            setattr(closed.error, name, value)
        entries = [scheduler_pb2.RelayedResponse(link=number, closed=closed) for number in range(1, 100)]
    return AttachWorkersResponse(entries=entries)


TO_RELAYS |= {
    "no message to workers": to_all_links(NO_MESSAGE),
    "an end that nobody can print": to_all_links(code="\n", message="é\n\x00", field="é\n"),
    "an end of 70,000 words": to_all_links(code="x" * 70_000, message="w " * 70_000, field="f" * 70_000),
}
