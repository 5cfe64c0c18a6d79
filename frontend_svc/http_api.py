"""The OpenAI-compatible face over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import TypeVar

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from frontend_svc.events import TokenLogprobs
from frontend_svc.generate_input import Asked, Trace, read_trace
from frontend_svc.http_body import parse_body, read_bytes
from frontend_svc.http_errors import JSON, answer_bug, answer_error, answer_http_error
from frontend_svc.intake import Intake
from frontend_svc.metrics import Metrics
from frontend_svc.models import ModelDirectory
from frontend_svc.openai_format import DONE, ChatFormat, CompletionFormat, Format, make_error
from frontend_svc.openai_schema import ChatBody, CommonBody, CompletionBody
from frontend_svc.session import Session
from signalbox.errors import SignalboxError, UnsupportedError

B = TypeVar("B", bound=CommonBody)
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class HttpApi:
    """Endpoints; each turns one body into a session and the session's deltas into bytes."""

    def __init__(
        self,
        intake: Intake,
        directory: ModelDirectory,
        metrics: Metrics,
        *,
        max_request_bytes: int,
        is_ready: Callable[[], bool],
    ) -> None:
        self._intake = intake
        self._directory = directory
        self._metrics = metrics
        self._max_request_bytes = max_request_bytes
        self._is_ready = is_ready
        self._created = int(time.time())
        self.app = Starlette(
            routes=[
                Route("/v1/completions", self.complete, methods=["POST"]),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/v1/models", self.list_models, methods=["GET"]),
                Route("/health", self.health, methods=["GET"]),
                Route("/ready", self.ready, methods=["GET"]),
                Route("/metrics", self.render_metrics, methods=["GET"]),
            ],
            exception_handlers={
                SignalboxError: answer_error,
                HTTPException: answer_http_error,
                Exception: answer_bug,
            },
        )

    async def complete(self, request: Request) -> Response:
        """POST /v1/completions."""
        return await self._answer(request, CompletionBody, CompletionBody.read, CompletionFormat)

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        return await self._answer(request, ChatBody, self._read_chat, ChatFormat)

    async def list_models(self, request: Request) -> Response:
        """GET /v1/models."""
        models = [
            {
                "id": model.name,
                "object": "model",
                "created": self._created,
                "owned_by": "signalbox",
                "max_model_len": model.max_tokens,
            }
            for model in self._directory.models
        ]
        return Response(orjson.dumps({"object": "list", "data": models}), media_type=JSON)

    async def health(self, request: Request) -> Response:
        """GET /health: the process is alive."""
        return Response(b'{"status":"ok"}', media_type=JSON)

    async def ready(self, request: Request) -> Response:
        """GET /ready: a request would be served."""
        if self._is_ready():
            return Response(b'{"status":"ready"}', media_type=JSON)
        return Response(b'{"status":"not ready"}', HTTPStatus.SERVICE_UNAVAILABLE, media_type=JSON)

    async def render_metrics(self, request: Request) -> Response:
        """GET /metrics."""
        return Response(self._metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    def _read_chat(self, body: ChatBody, trace: Trace) -> Asked:
        body.refuse_unsupported()
        tokenizer = self._intake.tokenizer
        if tokenizer is None or tokenizer.chat is None:
            raise UnsupportedError("the model has no chat template", field="messages")
        return body.read(tokenizer.chat.render([message.render() for message in body.messages]), trace)

    async def _answer(
        self, request: Request, schema: type[B], read: Callable[[B, Trace], Asked], form: type[Format]
    ) -> Response:
        body, session = await self._open(request, schema, read)
        async with watching(request.receive, session):
            tokenizer, given = self._intake.tokenizer, session.given
            answer = form(given.request_id, given.model, tokenizer, wants_usage=body.wants_usage)
            await session.wait_accepted()
        if body.stream:
            return StreamAnswer(session, answer)
        async with watching(request.receive, session):
            return Response(await collect(session, answer), media_type=JSON)

    async def _open(
        self, request: Request, schema: type[B], read: Callable[[B, Trace], Asked]
    ) -> tuple[B, Session]:
        try:
            body = parse_body(await read_bytes(request, self._max_request_bytes), schema)
            return body, await self._intake.open(read(body, _read_trace(request)))
        except SignalboxError as error:
            self._metrics.on_refused(error)
            raise


async def collect(session: Session, answer: Format) -> bytes:
    """Reads the session to its end. Raises the error that ended it, if one did."""
    text: list[str] = []
    token_ids: list[int] = []
    logprobs: list[TokenLogprobs] = []
    while True:
        delta = await session.next_delta()
        text.append(delta.text)
        token_ids += delta.token_ids
        logprobs += delta.logprobs
        if delta.finished is not None:
            if delta.finished.error is not None:
                raise delta.finished.error
            return answer.render_whole("".join(text), token_ids, logprobs, delta.finished)


class StreamAnswer(Response):
    """Server-sent events of one session. A client that leaves cancels it."""

    def __init__(self, session: Session, answer: Format) -> None:
        self.status_code = HTTPStatus.OK
        self.background = None
        self._session = session
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application of this answer."""
        async with watching(receive, self._session):
            await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
            if first := self._answer.render_first():
                await send({"type": "http.response.body", "body": first, "more_body": True})
            finished = False
            while not finished:
                chunk, finished = await self._next_chunk()
                if chunk:
                    await send({"type": "http.response.body", "body": chunk, "more_body": not finished})

    async def _next_chunk(self) -> tuple[bytes, bool]:
        delta = await self._session.next_delta()
        finished = delta.finished
        if finished is None:
            return self._answer.render_chunk(delta), False
        if finished.error is not None:
            return b"data: " + orjson.dumps(make_error(finished.error)) + b"\n\n" + DONE, True
        return self._answer.render_chunk(delta) + self._answer.render_end(finished), True


@contextlib.asynccontextmanager
async def watching(receive: Receive, session: Session) -> AsyncIterator[None]:
    """Cancels the session when its client disconnects, or when the block is left by an exception."""
    watcher = asyncio.create_task(_cancel_on_disconnect(receive, session))
    try:
        yield
    except BaseException:
        session.cancel()
        raise
    finally:
        watcher.cancel()


async def _cancel_on_disconnect(receive: Receive, session: Session) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    session.cancel()


def _read_trace(request: Request) -> Trace:
    return read_trace(request.headers.get("traceparent", ""), request.headers.get("tracestate", ""))
