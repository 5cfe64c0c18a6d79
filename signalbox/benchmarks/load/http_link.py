"""A load bench's way to any OpenAI-compatible server: POST /v1/completions with a prompt of token ids, streamed.

HTTP does not say how many tokens an event carries, so the total is the one in `usage`, and the latency between tokens
is that between events.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from signalbox.benchmarks.load.grpc_link import choose_model
from signalbox.benchmarks.load.http_stream import (
    HttpConnection,
    HttpPool,
    HttpProtocolError,
    StaleConnectionError,
)
from signalbox.benchmarks.load.record import Record
from signalbox.benchmarks.load.workload import GREEDY, Draw, Plan
from signalbox.errors import (
    DeadlineExceededError,
    InternalError,
    SignalboxError,
    UnavailableError,
)
from signalbox.links.tls.client_files import ClientFiles

PROBE_TIMEOUT_S = 10
OK = 200
_DATA = b"data:"
_DONE = b"[DONE]"


class HttpLink:
    """A server at `http://host:port`; a path in the address goes ahead of /v1."""

    def __init__(
        self,
        url: str,
        model: str = "",
        *,
        draw: Draw = GREEDY,
        timeout_s: float = 600,
        files: ClientFiles | None = None,
    ) -> None:
        """An empty `model` is the only one served. files: for https; None: those of the variables."""
        self._url, self._model, self._timeout_s = url, model, timeout_s
        self._draw = draw.fields()
        self._pool = HttpPool(url, files)

    async def find_model(self) -> str:
        """Raises UnavailableError when nothing answers, InvalidRequestError when a model has to be named."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S), self._pool.connection() as connection:
                status = await connection.send("GET", "/v1/models", b"")
                body = b"".join([chunk async for chunk in connection.chunks()])
        except (OSError, EOFError, TimeoutError, HttpProtocolError):
            raise UnavailableError(f"nothing answers at {self._url} as an OpenAI-compatible server") from None
        if status != OK:
            raise UnavailableError(f"{self._url}/v1/models answered with status {status}")
        try:
            served = [str(model["id"]) for model in json.loads(body)["data"]]
        except (ValueError, KeyError, TypeError):
            raise InternalError(f"{self._url}/v1/models did not answer with a list of models") from None
        self._model = choose_model(self._model, served, self._url)
        return self._model

    async def run(self, plan: Plan, record: Record) -> None:
        """One request; see Link."""
        body = {
            "model": self._model,
            "prompt": plan.prompt,
            "max_tokens": plan.max_tokens,
            **self._draw,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        encoded = json.dumps(body).encode()
        record.sent_at = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._send(encoded, record)
        except TimeoutError:
            record.fail(DeadlineExceededError(f"no end within {self._timeout_s:g} s"))
        except (OSError, EOFError, HttpProtocolError) as error:
            record.fail(UnavailableError(f"the connection to {self._url} broke: {error!r}"))
        except SignalboxError as error:
            record.fail(error)
        finally:
            record.ended_at = time.perf_counter()

    async def _send(self, body: bytes, record: Record) -> None:
        try:
            async with self._pool.connection() as connection:
                await _run(connection, body, record)
        except (
            StaleConnectionError
        ):  # closed while it was idle, as llama-server does: no fault of the request
            async with self._pool.connection(is_new=True) as connection:
                await _run(connection, body, record)

    async def close(self) -> None:
        """Closes all connections."""
        self._pool.close()


async def _run(connection: HttpConnection, body: bytes, record: Record) -> None:
    status = await connection.send("POST", "/v1/completions", body)
    if status != OK:
        text = b"".join([chunk async for chunk in connection.chunks()]).decode(errors="replace")
        record.error, record.error_message = f"http_{status}", _message_of(text)
        return
    rest = b""
    async for chunk in connection.chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(_DATA) and _DONE not in line[:13]:
                _take_event(json.loads(line[len(_DATA) :]), record)
    if not record.num_output_tokens and not record.error:
        record.num_output_tokens = len(record.arrivals)  # a server that ignores stream_options


def _take_event(event: dict[str, Any], record: Record) -> None:
    if "error" in event:
        error = event["error"]
        record.error = str(error.get("type") or "error") if isinstance(error, dict) else "error"
        record.error_message = str(error.get("message", "")) if isinstance(error, dict) else str(error)
        return
    if usage := event.get("usage"):
        record.num_output_tokens = int(usage["completion_tokens"])
    if any(choice.get("text") or not choice.get("finish_reason") for choice in event.get("choices", ())):
        record.arrivals.append(time.perf_counter())
        record.counts.append(1)


def _message_of(text: str) -> str:
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text[:200]
