"""A frontend that serves HTTP alone, or gRPC alone, and the port of its probes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from frontend_svc.config import FrontendSettings
from frontend_svc.guard.probes import MAX_CONNECTIONS, MAX_HEAD_BYTES, Probes
from frontend_svc.server import Frontend, serve
from signalbox.client import Client
from signalbox.errors import StartupError
from signalbox.runtime import config
from tests.frontend_svc.helpers import until
from tests.frontend_svc.scripted_cluster import Cluster


@contextlib.asynccontextmanager
async def running(cluster: Cluster, **settings: Any) -> AsyncIterator[Frontend]:
    """A frontend without a tokenizer, ready."""
    given = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "health": "127.0.0.1:0", "drain_s": 0.2}
    scheduler = f"127.0.0.1:{cluster.scheduler_port}"
    frontend = Frontend(FrontendSettings.model_validate({"scheduler": scheduler} | given | settings))
    await frontend.start()
    try:
        await until(lambda: frontend.is_ready)
        yield frontend
    finally:
        await frontend.stop()


async def probe(port: int, path: str) -> int:
    """The status of a probe."""
    async with httpx.AsyncClient() as client:
        return (await client.get(f"http://127.0.0.1:{port}{path}")).status_code


async def test_grpc_alone(cluster: Cluster) -> None:
    cluster.serve(lambda payload: [7, 8])
    async with running(cluster, http="") as frontend, Client(f"127.0.0.1:{frontend.grpc_port}") as client:
        result = await client.generate([1, 2], max_tokens=2).result()
        assert result.token_ids == (7, 8)
        assert frontend.http_port == 0
        assert await probe(frontend.health_port, "/ready") == 200


async def test_http_alone(cluster: Cluster) -> None:
    cluster.serve(lambda payload: [7, 8])
    async with running(cluster, grpc="") as frontend, httpx.AsyncClient() as client:
        body = {"prompt": [1, 2], "max_tokens": 2, "return_token_ids": True}
        answer = await client.post(f"http://127.0.0.1:{frontend.http_port}/v1/completions", json=body)
        assert answer.json()["choices"][0]["token_ids"] == [7, 8]
        assert frontend.grpc_port == 0


@pytest.mark.parametrize("arguments", [["--http=", "--grpc="], ["--http", "", "--grpc", ""]])
def test_no_face_at_all_is_an_error(arguments: list[str]) -> None:
    with pytest.raises(StartupError, match="http and grpc are both empty"):
        config.load(FrontendSettings, arguments)


def test_a_face_is_switched_off_by_an_empty_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNALBOX_FRONTEND_GRPC", "")
    settings = config.load(FrontendSettings, ["--http=0.0.0.0:0", "--insecure"])
    assert (settings.grpc, settings.faces, settings.plaintext_addresses) == (
        "",
        ("0.0.0.0:0",),
        ("0.0.0.0:0",),
    )


async def test_probes_tell_life_from_readiness(cluster: Cluster) -> None:
    async with running(cluster) as frontend:
        assert [await probe(frontend.health_port, path) for path in ("/live", "/ready", "/v1/models")] == [
            200,
            200,
            404,
        ]
        frontend.processor.stopping = True
        assert [await probe(frontend.health_port, path) for path in ("/live", "/ready")] == [200, 503]


async def test_nobody_keeps_a_probe_out() -> None:
    """Those above the bound are closed at once, and what is too long is closed: others are answered then."""
    probes = Probes(lambda: True)
    port = await probes.start("127.0.0.1:0")
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)]
    extra, extra_writer = await asyncio.open_connection("127.0.0.1", port)
    assert await asyncio.wait_for(extra.read(), 5) == b""
    extra_writer.close()
    for reader, writer in silent:
        writer.write(b"GET /live HTTP/1.1\r\n" + b"a" * 2 * MAX_HEAD_BYTES)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
    assert await probe(port, "/live") == 200
    await probes.stop()


async def test_a_port_in_use_is_one_sentence(cluster: Cluster) -> None:
    probes = Probes(lambda: True)
    address = f"127.0.0.1:{await probes.start('127.0.0.1:0')}"
    with pytest.raises(StartupError, match=f"cannot listen on {address}"):
        await serve(FrontendSettings(http="127.0.0.1:0", grpc="", health=address), asyncio.Event())
    await probes.stop()
