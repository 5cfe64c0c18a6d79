"""Lines of batches, answered by the endpoints themselves: the same checks, templates and answers as over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from frontend_svc.access.access_control import AccessControl
from frontend_svc.api.http.answer_headers import answer_name
from frontend_svc.api.http.call import PRIORITY_HEADER
from frontend_svc.api.http.errors import answer_bug, answer_error
from frontend_svc.batches.batch import Batch
from frontend_svc.batches.batch_run import LineAnswer
from signalbox.errors import ResourceExhaustedError, SignalboxError, UnavailableError

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""How long to wait where nobody says when trying again makes sense, in seconds."""
MAX_RETRY_S = 30.0

Endpoint = Callable[[Request], Awaitable[Response]]


class InProcessCalls:
    """Answers one line of a batch under the key that made the batch, in the class of batches."""

    def __init__(self, endpoints: Mapping[str, Endpoint], access: AccessControl, priority: int) -> None:
        """`endpoints` by path."""
        self._endpoints, self._access = endpoints, access
        self._priority = str(priority).encode()

    async def execute(self, batch: Batch, body: bytes) -> LineAnswer:
        """Needs a task of its own, as whose call it is belongs to the task. Cancelling that ends the call."""
        request = self._make_request(batch.endpoint, body)
        try:
            self._access.act_for(batch.key_id, batch.endpoint)
            response = await self._endpoints[batch.endpoint](request)
        except (ResourceExhaustedError, UnavailableError) as error:
            return await self._refused(request, error, _retry_s(error))
        except SignalboxError as error:
            return await self._refused(request, error, None)
        except Exception as error:
            return _answer(request, await answer_bug(request, error), None)
        return _answer(request, response, None)

    async def _refused(self, request: Request, error: SignalboxError, retry_s: float | None) -> LineAnswer:
        return _answer(request, await answer_error(request, error), retry_s)

    def _make_request(self, path: str, body: bytes) -> Request:
        """A call as a server would hand it to the application. Its client never leaves."""
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (PRIORITY_HEADER.encode(), self._priority),
            ],
            "state": {},
        }
        is_sent = False

        async def receive() -> Message:
            nonlocal is_sent
            if is_sent:
                await asyncio.get_running_loop().create_future()
            is_sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        return Request(scope, receive)


def _retry_s(error: SignalboxError) -> float:
    told_s = error.retry_after_s if isinstance(error, ResourceExhaustedError) else None
    return min(max(RETRY_S if told_s is None else told_s, 0.05), MAX_RETRY_S)


def _answer(request: Request, response: Response, retry_s: float | None) -> LineAnswer:
    return LineAnswer(response.status_code, answer_name(request.scope), bytes(response.body), retry_s)
