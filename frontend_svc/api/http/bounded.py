"""HTTP connections that are refused when they ask for too much, or take too long to say what they want.

All of this happens before a key is looked at, so nothing here may cost more than the bytes that were sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from http import HTTPStatus
from typing import Any

import orjson

from frontend_svc.api.http.bounds import HttpBounds
from frontend_svc.api.http.gentle_end import Crowd, GentleEndProtocol, host_of
from frontend_svc.api.openai.renderer import make_error
from signalbox.errors import (
    InvalidRequestError,
    ResourceExhaustedError,
    SignalboxError,
    UnavailableError,
    retry_after_of,
)

SHORTEST_WAIT_S = 0.05


class Stage(Enum):
    """What a connection is waiting for."""

    NOTHING = "nothing"
    HEAD = "head"
    BODY = "body"


class BoundedProtocol(GentleEndProtocol):
    """uvicorn's protocol within bounds."""

    def __init__(
        self,
        *args: Any,
        bounds: HttpBounds,
        crowd: Crowd,
        on_refused: Callable[[str], None],
        **options: Any,
    ) -> None:
        """on_refused: gets the word for what was too much."""
        super().__init__(*args, bounds=bounds, crowd=crowd, on_refused=on_refused, **options)
        self._stage, self._since_s, self._bytes = Stage.NOTHING, 0.0, 0
        self._head_bytes = self._num_headers = 0
        self._is_silent = True
        self._timer: asyncio.TimerHandle | None = None
        self._refusal: tuple[HTTPStatus, str, SignalboxError] | None = None
        self._host: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Where there are too many, the longest idle one makes room; without one this is refused."""
        super().connection_made(transport)
        idle = next(iter(self._crowd.idle), None)
        if not self._is_welcome(transport):
            return
        if len(self.connections) <= self._bounds.max_connections:
            self._enter(Stage.HEAD)
        elif idle is not None:
            del self._crowd.idle[idle]
            idle.transport.close()
            self._enter(Stage.HEAD)
        else:
            error = UnavailableError(f"more than {self._bounds.max_connections} connections are open here")
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "connections", error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._host is not None:
            self._crowd.addresses.leave(self._host)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Counts what comes."""
        if self._refusal is not None or self.is_ending():
            super().data_received(data)
            return
        if self._stage is Stage.NOTHING:
            self._enter(Stage.HEAD)
        self._is_silent = False
        self._bytes += len(data)
        super().data_received(data)
        if self._stage is Stage.HEAD and self._bytes > self._bounds.max_head_bytes:
            self._refuse(*self._too_large_head())

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._head_bytes = self._num_headers = 0
        self._enter(Stage.HEAD)

    def on_url(self, url: bytes) -> None:
        """Part of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        self._num_headers += 1
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Refuses what proxies and servers are known to understand differently."""
        names = [name for name, _ in self.headers]
        version = self.parser.get_http_version()
        if version == "1.1" and names.count(b"host") != 1:
            self._stop("host", "a request has one Host header")
        if version != "1.1" and b"transfer-encoding" in names:
            self._stop("transfer_encoding", f"Transfer-Encoding is not a part of HTTP/{version}")
        self._enter(Stage.BODY)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """All of the request is there."""
        self._stage = Stage.NOTHING
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What the parser did not take: ours, if it was one of our bounds that it met."""
        refusal = self._refusal or (HTTPStatus.BAD_REQUEST, "malformed", InvalidRequestError(msg))
        self._refuse(*refusal)

    def _is_welcome(self, transport: asyncio.Transport) -> bool:
        """False: it is refused, for memory or for its address."""
        crowd, host = self._crowd, host_of(transport)
        if crowd.is_shut():
            short = UnavailableError("short of memory; try again in 1 s", retry_after_s=1.0)
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "memory", short)
            return False
        if not crowd.addresses.enter(host):
            most = self._bounds.max_per_address
            error = ResourceExhaustedError(f"{most} connections of your address are open here")
            self._refuse(HTTPStatus.TOO_MANY_REQUESTS, "address", error)
            return False
        self._host = host
        return True

    def _count(self, num_bytes: int) -> None:
        self._head_bytes += num_bytes
        bounds = self._bounds
        if self._head_bytes > bounds.max_head_bytes or self._num_headers > bounds.max_headers:
            self._refusal = self._too_large_head()
            raise ValueError("the head is too large")  # ends the parser

    def _stop(self, word: str, message: str) -> None:
        self._refusal = HTTPStatus.BAD_REQUEST, word, InvalidRequestError(message)
        raise ValueError(message)  # ends the parser

    def _too_large_head(self) -> tuple[HTTPStatus, str, SignalboxError]:
        bounds = self._bounds
        error = InvalidRequestError(
            f"request line and headers are larger than {bounds.max_head_bytes} bytes, or more than "
            f"{bounds.max_headers} headers"
        )
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "head", error

    def _enter(self, stage: Stage) -> None:
        self._stage, self._since_s, self._bytes = stage, self.loop.time(), 0
        if self._timer is None:  # one for all stages: it looks what there is to wait for when it is due
            self._timer = self.loop.call_later(self._bounds.head_s, self._look_after)

    def _due_s(self) -> float:
        """When the bytes so far are no longer enough."""
        bounds = self._bounds
        if self._stage is Stage.HEAD:
            return self._since_s + bounds.head_s
        return self._since_s + bounds.body_grace_s + self._bytes / bounds.body_bytes_s

    def _look_after(self) -> None:
        self._timer = None
        if self._stage is Stage.NOTHING or self.is_ending():
            return
        if self._stage is Stage.BODY and self.flow.read_paused:
            self._since_s, self._bytes = self.loop.time(), 0
        wait_s = self._due_s() - self.loop.time()
        if wait_s > 0:
            self._timer = self.loop.call_later(max(wait_s, SHORTEST_WAIT_S), self._look_after)
        elif self._is_silent:
            self.transport.close()  # there is nothing to answer
        else:
            error = InvalidRequestError(f"the {self._stage.value} of the request did not come in time")
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"slow_{self._stage.value}", error)

    def _is_answering_another(self) -> bool:
        """An answer is begun, or due to a request that is here in full: what is refused came behind it."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        return bool(cycle.response_started or not cycle.more_body)

    def _refuse(self, status: HTTPStatus, word: str, error: SignalboxError) -> None:
        """Answers, unless an answer is on its way or there, and ends the connection."""
        is_answered = self._stage is Stage.BODY and self.cycle is not None and self.cycle.response_complete
        self._refusal = status, word, error
        self._stage = Stage.NOTHING
        self._on_refused(word)
        if self.pipeline or self._is_answering_another():
            self._watch_reading()
            self.transport.close()  # what is written now would be read as that answer, or as a part of it
            return
        if not is_answered:
            body = orjson.dumps(make_error(error))
            seconds = retry_after_of(error)
            hint = "" if seconds is None else f"retry-after: {seconds}\r\n"
            head = (
                f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
                f"{hint}content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.end(is_sending=True)
