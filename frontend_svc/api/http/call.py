"""One call over HTTP: body in, choices opened, answer out as a whole or as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from types import MappingProxyType
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from frontend_svc.api.http.answer_headers import name_answer
from frontend_svc.api.http.body import B, parse_body, read_bytes, require_json
from frontend_svc.api.http.errors import JSON
from frontend_svc.api.http.half_close import say_events
from frontend_svc.requests.choices import Choices, open_choices
from frontend_svc.requests.events import Delta
from frontend_svc.requests.request import ClientRequest, Trace, read_trace
from frontend_svc.services import Services
from signalbox.errors import InvalidRequestError, SignalboxError

log = logging.getLogger(__name__)

TIMEOUT_HEADER = "x-request-timeout"
PRIORITY_HEADER = "x-priority"
REQUEST_ID_HEADER = "x-request-id"
WARNING_HEADER = "x-signalbox-warning"
"""Tells in an answer what of the request was left out."""
MAX_WARNINGS = 16
MAX_WARNING_CHARS = 1024
MAX_TIMEOUT_S = 86_400.0
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Cancellable(Protocol):
    """Sessions of one call."""

    def cancel(self) -> None:
        """Ends what still runs."""


class Renderer(Protocol):
    """How an endpoint tells what the choices make."""

    def render_first(self) -> bytes:
        """The events that come before any delta."""

    def render_deltas(self, news: Sequence[tuple[int, Delta]]) -> bytes:
        """The events of what the choices have; empty if it tells nothing."""

    def render_end(self) -> bytes:
        """What follows the last delta."""

    def render_error(self, error: SignalboxError) -> bytes:
        """What follows the last delta when the call failed."""

    def render_whole(self, outputs: Sequence[Delta]) -> bytes:
        """The body of an answer that is not streamed."""


async def read_body(services: Services, request: Request, schema: type[B]) -> B:
    """Raises InvalidRequestError, which names the first wrong field."""
    settings = services.settings
    require_json(request)
    services.access.require_room()
    with services.body_bytes.reading() as take:
        data = await read_bytes(request, settings.max_request_bytes, take)
        return parse_body(data, schema, drop_unknown=settings.unknown_fields == "warn")


async def open_call(
    services: Services, request: Request, prompts: Sequence[ClientRequest], num_per_prompt: int = 1
) -> Choices:
    """Opens the sessions of the call, with the id and priority and under the time limit that its headers give."""
    most = services.settings.limits.max_choices
    if len(prompts) * num_per_prompt > most:
        raise InvalidRequestError(
            f"{len(prompts)} prompts with {num_per_prompt} choices each are too many: "
            f"at most {most} choices are allowed",
            field=prompts[0].names.prompt,
        )
    prompts = read_request_id(request, read_priority(request, prompts))
    choices = await open_choices(services.processor, prompts, num_per_prompt, read_timeout(request))
    name_answer(request.scope, choices.sessions[0].request_id)
    return choices


async def answer(
    request: Request,
    choices: Choices,
    make_renderer: Callable[[], Renderer],
    *,
    stream: bool,
    warnings: Sequence[str] = (),
) -> Response:
    """The answer once the request is accepted. A client that leaves, or a renderer that fails, cancels it.

    `warnings` tell what of the request was left out; they go into headers, as no body has a place for them.
    """
    headers = warning_headers(warnings)
    async with watching(request.receive, choices):
        renderer = make_renderer()
        await choices.wait_accepted()
        if stream:
            return StreamAnswer(choices, renderer, headers)
        return Response(renderer.render_whole(await choices.collect()), headers=headers, media_type=JSON)


def warning_headers(warnings: Sequence[str]) -> dict[str, str]:
    """One header with all of them; it is logged, too. None without any."""
    if not warnings:
        return {}
    told = "; ".join(warnings[:MAX_WARNINGS])
    log.warning("a request was served in part: %s", told)
    return {WARNING_HEADER: ascii(told)[1:-1][:MAX_WARNING_CHARS]}


class StreamAnswer(Response):
    """Server-sent events of one call. A client that leaves cancels it."""

    def __init__(
        self, choices: Choices, renderer: Renderer, headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.status_code = HTTPStatus.OK
        self._sent_headers = STREAM_HEADERS + [
            (name.encode(), value.encode()) for name, value in headers.items()
        ]
        self.background = None
        self._choices = choices
        self._renderer = renderer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application of this answer."""
        say_events(scope)
        async with watching(receive, self._choices):
            await send({"type": "http.response.start", "status": 200, "headers": self._sent_headers})
            if first := self._renderer.render_first():
                await send({"type": "http.response.body", "body": first, "more_body": True})
            while not self._choices.all_ended:
                if chunk := await self._next_chunk():
                    more = not self._choices.all_ended
                    await send({"type": "http.response.body", "body": chunk, "more_body": more})

    async def _next_chunk(self) -> bytes:
        news = await self._choices.next_deltas()
        for _, delta in news:
            if delta.finished is not None and delta.finished.error is not None:
                self._choices.abandon()
                return self._renderer.render_error(delta.finished.error)
        chunk = self._renderer.render_deltas(news)
        return chunk + self._renderer.render_end() if self._choices.all_ended else chunk


@contextlib.asynccontextmanager
async def watching(receive: Receive, choices: Cancellable) -> AsyncIterator[None]:
    """Cancels the sessions when their client disconnects, or when the block is left by an exception."""
    watcher = asyncio.create_task(_cancel_on_disconnect(receive, choices))
    try:
        yield
    except BaseException:
        choices.cancel()
        raise
    finally:
        watcher.cancel()


async def _cancel_on_disconnect(receive: Receive, choices: Cancellable) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    choices.cancel()


def trace_of(request: Request) -> Trace:
    """W3C trace context of the call."""
    return read_trace(request.headers.get("traceparent", ""), request.headers.get("tracestate", ""))


def read_priority(request: Request, prompts: Sequence[ClientRequest]) -> Sequence[ClientRequest]:
    """`prompts` with the priority of X-Priority, if that is there; the body may then say the same or nothing."""
    text = request.headers.get(PRIORITY_HEADER)
    if text is None:
        return prompts
    try:
        priority = int(text)
    except ValueError:
        raise InvalidRequestError(
            f"{PRIORITY_HEADER} must be a whole number, got {text!r}", field=PRIORITY_HEADER
        ) from None
    for each in prompts:
        if each.priority not in (0, priority):
            raise InvalidRequestError(
                f"{PRIORITY_HEADER} is {priority}, but {each.names.priority} is {each.priority}",
                field=PRIORITY_HEADER,
            )
    return [
        replace(each, priority=priority, names=replace(each.names, priority=PRIORITY_HEADER))
        for each in prompts
    ]


def read_request_id(request: Request, prompts: Sequence[ClientRequest]) -> Sequence[ClientRequest]:
    """`prompts` with the id of X-Request-Id, if that is there: the client then knows it while the request waits."""
    name = request.headers.get(REQUEST_ID_HEADER)
    if not name:
        return prompts
    return [
        replace(
            each,
            request_id=f"{name}:{index}" if index else name,
            names=replace(each.names, request_id=REQUEST_ID_HEADER),
        )
        for index, each in enumerate(prompts)
    ]


def read_timeout(request: Request) -> float | None:
    """Seconds that the call may take, from X-Request-Timeout; None: as long as it takes."""
    text = request.headers.get(TIMEOUT_HEADER)
    if text is None:
        return None
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = math.nan
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise InvalidRequestError(
            f"{TIMEOUT_HEADER} must be seconds, above 0 to {MAX_TIMEOUT_S:g}, got {text!r}",
            field=TIMEOUT_HEADER,
        )
    return timeout_s
