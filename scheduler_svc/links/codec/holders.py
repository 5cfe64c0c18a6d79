"""Reads from a frontend's hello which worker processes may have its requests (docs/design.md, J1)."""

from __future__ import annotations

from itertools import islice

from scheduler_svc.core.cluster.unaccounted import Holders
from scheduler_svc.core.state.requests.evidence import Process
from signalbox.errors import InvalidRequestError
from signalbox.v1 import from_frontend_pb2

FIELD = "hello.holders"


def parse_holders(hello: from_frontend_pb2.FrontendHello) -> dict[str, Holders]:
    """The processes that may have each request, by its id. A frontend that does not say of each means all of them by
    what it names; one that names none says nothing. Raises InvalidRequestError when the columns contradict each
    other."""
    processes = [Process(worker.worker_id, worker.worker_instance) for worker in hello.workers]
    if not hello.num_holders:
        anyone = tuple(processes) or None
        return {ref.request_id: anyone for ref in hello.live}
    if len(hello.num_holders) != len(hello.live) or sum(hello.num_holders) != len(hello.holders):
        raise InvalidRequestError("it does not say of each live request who may have it", field=FIELD)
    if any(place >= len(processes) for place in hello.holders):
        raise InvalidRequestError("a holder is none of its workers", field=FIELD)
    places = iter(hello.holders)
    return {
        ref.request_id: tuple(processes[place] for place in islice(places, count))
        for ref, count in zip(hello.live, hello.num_holders, strict=True)
    }
