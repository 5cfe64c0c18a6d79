"""One call that asks for results of many prompts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from starlette.requests import Request

from frontend_svc.api.http.answer_headers import name_answer
from frontend_svc.api.http.call import read_priority, read_request_id, read_timeout, watching
from frontend_svc.models import Model
from frontend_svc.pooling.fanout import MATRIX_WINDOW, WINDOW, Fanout
from frontend_svc.requests.request import ClientRequest
from frontend_svc.services import Services
from signalbox.errors import InvalidRequestError
from signalbox.protocol.enums import ModelTask

TOKEN_TASKS = frozenset((ModelTask.TOKEN_EMBED, ModelTask.TOKEN_CLASSIFY))
"""Their results have a row for each token."""


class Results(NamedTuple):
    """What the workers made."""

    vectors: list[bytes]
    """One for each request: 32-bit floats, little endian."""
    lengths: list[int]
    """Tokens of each prompt."""
    call_id: str
    """Name of the first request."""

    @property
    def num_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(self.lengths)


async def run_requests(
    services: Services, request: Request, requests: Sequence[ClientRequest], field: str
) -> Results:
    """The results of all, with the id and priority and under the time limit that the call's headers give.

    `field` is what has made them so many. Raises the first error, and a client that leaves cancels all.
    """
    check_count(services, len(requests), field)
    requests = read_request_id(request, read_priority(request, requests))
    pooling = requests[0].pooling
    assert pooling is not None
    window = MATRIX_WINDOW if pooling.task in TOKEN_TASKS else WINDOW
    fanout = Fanout(services.processor, requests, window, read_timeout(request))
    async with watching(request.receive, fanout):
        with services.metrics.counting_refusals():
            deltas = await fanout.collect()
    name_answer(request.scope, requests[0].request_id)
    return Results([delta.vector for delta in deltas], fanout.lengths, requests[0].request_id)


def check_count(services: Services, count: int, field: str) -> None:
    """Raises InvalidRequestError for more prompts than a call may have, or none."""
    most = services.settings.limits.max_choices
    if not 1 <= count <= most:
        raise InvalidRequestError(f"{field} must have from 1 to {most} entries, got {count}", field=field)


def answer_head(kind: str, results: Results, model: Model) -> dict[str, Any]:
    """What answers begin with."""
    return {"id": results.call_id, "object": kind, "created": int(time.time()), "model": model.name}
