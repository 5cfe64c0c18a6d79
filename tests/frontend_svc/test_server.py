"""Start and stop of the process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from frontend_svc.config import FrontendSettings
from frontend_svc.server import Frontend, serve
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.errors import StartupError
from signalbox.links import rpc
from signalbox.runtime import config
from tests.frontend_svc.helpers import character_ids, until
from tests.frontend_svc.scripted_cluster import Cluster, Row


async def ask(frontend: Frontend, **body: object) -> httpx.Response:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}", timeout=5) as http:
        return await http.post("/v1/completions", json={"prompt": "the"} | body)


async def test_open_requests_are_drained(frontend: Frontend, cluster: Cluster, tokenizer: Tokenizer) -> None:
    asking = asyncio.create_task(ask(frontend))
    attempt = (await cluster.scheduler.next("submit")).ref.attempt
    stopping = asyncio.create_task(frontend.stop())
    await until(lambda: frontend.processor.stopping)
    cluster.worker.emit(Row(attempt, 0, character_ids(tokenizer, "ab"), 2))
    answer = await asking
    assert (answer.status_code, answer.json()["choices"][0]["text"]) == (200, "ab")
    await stopping


@pytest.mark.parametrize("stream", [False, True])
async def test_what_does_not_end_in_time_is_cancelled(
    frontend: Frontend, cluster: Cluster, stream: bool
) -> None:
    asking = asyncio.create_task(ask(frontend, stream=stream))
    ref = (await cluster.scheduler.next("submit")).ref
    cluster.worker.emit(Row(ref.attempt, 0, [9]))
    await until(lambda: any(len(session.output) for session in frontend.table))
    stopping = asyncio.create_task(frontend.stop())
    answer = await asking
    assert "the server is stopping" in answer.text
    assert answer.status_code == (200 if stream else 503)
    assert (await cluster.scheduler.next("cancel")).ref == ref
    await stopping


async def test_health_follows_readiness(frontend: Frontend, cluster: Cluster) -> None:
    async with rpc.channel(f"127.0.0.1:{frontend.grpc_port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        async def status() -> int:
            request = health_pb2.HealthCheckRequest(service="signalbox.v1.GenerationService")
            return int((await stub.Check(request)).status)

        async with asyncio.timeout(5):
            while await status() != health_pb2.HealthCheckResponse.SERVING:
                await asyncio.sleep(0.01)
            # Again and again: the frontend dials anew within 50 ms, and its health may not have been told by then.
            while await status() != health_pb2.HealthCheckResponse.NOT_SERVING:
                cluster.scheduler.break_link()
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("face", ["http", "grpc"])
async def test_a_port_in_use_is_one_sentence(face: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        addresses = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0"} | {face: address}
        settings = FrontendSettings.model_validate(addresses)
        with pytest.raises(StartupError, match=f"cannot listen on {address}"):
            await serve(settings, asyncio.Event())


def test_settings() -> None:
    settings = config.load(FrontendSettings, ["--model", "/m", "--queue-s", "1", "--max-messages=3"])
    assert (settings.model, settings.queue_s, settings.limits.max_messages) == (Path("/m"), 1, 3)
    for bad in (["--http", "8000"], ["--scheduler", "host:99999"], ["--replay-limit", "-1"]):
        with pytest.raises(StartupError, match=bad[0]):
            config.load(FrontendSettings, bad)


@pytest.mark.fresh
def test_the_process(model_directory: Path) -> None:
    """Starts without a scheduler, is alive but not ready, and stops on SIGTERM."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = [
        f"--http=127.0.0.1:{port}",
        "--grpc=127.0.0.1:0",
        f"--model={model_directory}",
        "--scheduler=127.0.0.1:1",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX")}
    process = subprocess.Popen(
        [sys.executable, "-m", "frontend_svc", *flags], env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as http:
            wait_alive(http)
            assert http.get("/ready").status_code == 503
            answer = http.post("/v1/completions", json={"prompt": "the"})
            assert (answer.status_code, answer.json()["error"]["message"]) == (503, "no worker is attached")
            assert answer.headers["retry-after"] == "1"
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
    finally:
        process.kill()


def wait_alive(http: httpx.Client) -> None:
    for _ in range(200):
        try:
            assert http.get("/health").status_code == 200
            return
        except httpx.ConnectError:
            signal.sigtimedwait([], 0.05)
    raise AssertionError("the process did not come up")


def test_no_heavy_imports() -> None:
    code = "import sys, frontend_svc.__main__; print({'torch', 'transformers', 'numpy'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "set()\n"
    )
