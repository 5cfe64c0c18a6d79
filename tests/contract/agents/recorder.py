"""An HTTP server that passes calls on to a frontend, and keeps what both sides said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]
LOCAL = {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}
"""Headers of one connection, which say nothing about the next one."""
TIMEOUT_S = 60


@dataclass
class Exchange:
    """A call and its answer."""

    method: str
    target: str
    """Path and query."""
    headers: dict[str, str]
    body: Any
    """As JSON, or as text where it is none."""
    status: int = 0
    """0: it was never answered."""
    answer: str = ""
    """The body of the answer, as far as the client read it."""
    answer_headers: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """All of it, as JSON can say it."""
        return asdict(self)


class Recorder:
    """The server's address, and the exchanges so far."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.exchanges: list[Exchange] = []
        self.url = ""
        self._client = client

    async def serve(self, request: Request) -> StreamingResponse:
        """Passes one call on."""
        body = await request.body()
        query = f"?{request.url.query}" if request.url.query else ""
        headers = {name: value for name, value in request.headers.items() if name not in LOCAL}
        exchange = Exchange(request.method, request.url.path + query, headers, read_json(body))
        self.exchanges.append(exchange)
        passed = self._client.build_request(request.method, exchange.target, headers=headers, content=body)
        answer = await self._client.send(passed, stream=True)
        exchange.status = answer.status_code
        exchange.answer_headers = {k: v for k, v in answer.headers.items() if k not in LOCAL}
        return StreamingResponse(_pass_on(answer, exchange), exchange.status, headers=exchange.answer_headers)


async def _pass_on(answer: httpx.Response, exchange: Exchange) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.aiter_bytes():
            exchange.answer += chunk.decode(errors="replace")
            yield chunk
    finally:
        await answer.aclose()


def read_json(body: bytes) -> Any:
    """The value that was written, or the text."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode(errors="replace")


@asynccontextmanager
async def recording(url: str) -> AsyncIterator[Recorder]:
    """Runs before the server at `url` until it is left."""
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as client:
        recorder = Recorder(client)
        app = Starlette(routes=[Route("/{path:path}", recorder.serve, methods=METHODS)])
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none", lifespan="off"))
        serving = asyncio.create_task(server.serve())
        try:
            while not server.started:
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            recorder.url = f"http://127.0.0.1:{port}"
            yield recorder
        finally:
            server.should_exit = True
            await serving
