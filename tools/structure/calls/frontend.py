"""One token through a frontend: from a worker's message to the bytes of an event, without network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import numpy as np

import signalbox
from frontend_svc.api.http.app import HttpApi
from frontend_svc.config import FrontendSettings
from frontend_svc.links.worker_link import WorkerLink
from frontend_svc.links.worker_process import WorkerProcess
from frontend_svc.models import Worker
from frontend_svc.services import Services, make_services
from signalbox.links.readable import EOF
from signalbox.protocol.enums import ModelTask
from signalbox.protocol.model_identity import UNSAID, ModelIdentity
from signalbox.v1 import worker_pb2
from tools.structure.calls.counting import CallCounter, Count, Kind, median

MODEL = Path(signalbox.__file__).parent / "demo_model"
WARM_UP_TOKENS, TOKENS = 16, 32
TEXT = " the"
"""What each token of the output says."""
NUM_AT_ONCE = 3
"""Tokens of a message, where the worker has drafts that are right."""
TICKS = 3
"""Turns of the event loop after an event: what the message has made others do is done by then."""


class _Messages:
    """The call of an output stream: gives what is put in."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[worker_pb2.StreamOutputsResponse] = asyncio.Queue()

    def put(self, message: worker_pb2.StreamOutputsResponse) -> None:
        self._messages.put_nowait(message)

    def end(self) -> None:
        self._messages.put_nowait(EOF)

    async def read(self) -> worker_pb2.StreamOutputsResponse:
        return await self._messages.get()


class _Client:
    """A client of the ASGI application, with one streamed chat completion."""

    def __init__(self) -> None:
        self.num_events = 0
        self._has_sent = False
        self._has_news = asyncio.Event()
        self.is_gone = asyncio.Event()

    async def call(self, api: HttpApi) -> None:
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/v1/chat/completions",
            "raw_path": b"/v1/chat/completions",
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
        }
        await api.app(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if not self._has_sent:
            self._has_sent = True
            messages = [{"role": "user", "content": "Say something."}]
            body = {"messages": messages, "stream": True, "max_tokens": 512}
            return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}
        await self.is_gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200, message
        elif message.get("body"):
            self.num_events += 1
            self._has_news.set()

    async def wait_for_event(self) -> None:
        await self._has_news.wait()
        self._has_news.clear()


def measure(kind: Kind, counter: CallCounter) -> Count:
    """Calls of one steady token, or of one message where the worker has drafts."""
    return asyncio.run(_measure(kind, counter))


async def _measure(kind: Kind, counter: CallCounter) -> Count:
    services = make_services(
        FrontendSettings(model=MODEL, scheduler="127.0.0.1:1", http="127.0.0.1:0", grpc="127.0.0.1:0")
    )
    worker = _worker(kind)
    services.directory.replace([worker])
    services.operations.begin_link()
    messages, client = _Messages(), _Client()
    reading = asyncio.create_task(_link(services, worker)._read(messages))
    calling = asyncio.create_task(client.call(HttpApi(services, is_ready=lambda: True)))
    try:
        attempt = await _placed(services, worker)
        counts = []
        for number in range(WARM_UP_TOKENS + TOKENS):
            message = _message(kind, services, number, attempt)
            counter.start()
            messages.put(message)
            await client.wait_for_event()
            for _ in range(TICKS):
                await asyncio.sleep(0)
            counts.append(counter.stop())
        return median(counts[WARM_UP_TOKENS:])
    finally:
        messages.end()
        client.is_gone.set()
        await asyncio.wait([reading, calling], timeout=10)
        services.stop()


def _worker(kind: Kind) -> Worker:
    tasks: tuple[ModelTask, ...] = ()
    identity = UNSAID
    if kind is Kind.FEATURES:
        tasks, identity = tuple(ModelTask), ModelIdentity("weights", "form", "class")
    return Worker("worker", "instance", "127.0.0.1:1", "model", 2048, 16, 2048, 4096, "", tasks, identity)


def _link(services: Services, worker: Worker) -> WorkerLink:
    return WorkerLink(
        WorkerProcess(worker, log_number=1),
        services.instance,
        services.table,
        services.orders,
        lambda link: None,
        lambda link: None,
        lambda term, instance: None,
        silence_s=10,
        unreachable_s=10,
    )


async def _placed(services: Services, worker: Worker) -> int:
    """The attempt of the one request, once it is submitted and placed."""
    while not len(services.table):
        await services.operations.wait()
    services.operations.take()
    (session,) = services.table
    session.on_placed(session.attempt, worker.worker_id, 0, worker.identity)
    return session.attempt


def _message(kind: Kind, services: Services, number: int, attempt: int) -> worker_pb2.StreamOutputsResponse:
    count = NUM_AT_ONCE if kind is Kind.DRAFTS else 1
    assert services.processor.tokenizer is not None
    token = services.processor.tokenizer.fast.encode(TEXT).ids[0]
    batch = worker_pb2.OutputBatch(
        sequence=number + 1,
        attempts=np.array([attempt], "<u4").tobytes(),
        starts=np.array([number * count], "<u4").tobytes(),
        counts=bytes([count]) if count > 1 else b"",
        token_ids=np.array([token] * count, "<i4").tobytes(),
    )
    return worker_pb2.StreamOutputsResponse(batches=[batch])
