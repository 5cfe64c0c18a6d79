"""Frontends with a key file, and clients that send its keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import openai

from frontend_svc.server import Frontend
from signalbox.api_keys import NewKey, make_key
from signalbox.client import Client

COMPLETION = {"model": "toy", "prompt": "the fox"}


class KeyRing:
    """A key file and the keys in it, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys: dict[str, NewKey] = {}
        self._lines: dict[str, str] = {}

    def add(self, name: str, tenant: str = "acme", **fields: object) -> None:
        """Adds or changes a key."""
        key = self.keys.setdefault(name, make_key())
        more = "".join(f", {field} = {str(value).lower()}" for field, value in fields.items())
        self._lines[name] = f'"{key.key_id}" = {{ hash = "{key.hash}", tenant = "{tenant}"{more} }}\n'
        self.path.write_text("".join(self._lines.values()))

    def remove(self, name: str) -> None:
        del self._lines[name]
        self.path.write_text("".join(self._lines.values()))

    def headers(self, name: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[name].text}"}

    def metadata(self, name: str) -> tuple[tuple[str, str], ...]:
        return tuple(self.headers(name).items())


Start = Callable[..., Awaitable[Frontend]]


@asynccontextmanager
async def http_of(frontend: Frontend) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}", timeout=5) as client:
        yield client


@asynccontextmanager
async def sdk_of(frontend: Frontend, key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"http://127.0.0.1:{frontend.http_port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=5) as client:
        yield client


@asynccontextmanager
async def grpc_of(frontend: Frontend, key: str) -> AsyncIterator[Client]:
    async with Client(f"127.0.0.1:{frontend.grpc_port}", api_key=key) as client:
        yield client


async def ask(frontend: Frontend, headers: dict[str, str], **body: object) -> httpx.Response:
    async with http_of(frontend) as http:
        return await http.post("/v1/completions", json=COMPLETION | body, headers=headers)


async def until_answer(frontend: Frontend, headers: dict[str, str], status: int) -> None:
    """Asks for the models until the answer has this status: the key file has been read again."""
    async with asyncio.timeout(5), http_of(frontend) as http:
        while (await http.get("/v1/models", headers=headers)).status_code != status:
            await asyncio.sleep(0.02)
