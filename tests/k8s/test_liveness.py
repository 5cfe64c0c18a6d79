"""What the probes rest on: the health names of a worker, and when each of them changes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from signalbox.links import rpc
from tests.ports import free_ports
from worker_svc import worker as worker_shell
from worker_svc.config import WorkerSettings

WORKER = "signalbox.v1.WorkerService"
SERVING = "SERVING"
NOT_SERVING = "NOT_SERVING"


async def health(address: str, name: str) -> str:
    """State of a health name, or the status code of the call that failed."""
    async with rpc.channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
        except grpc.aio.AioRpcError as error:
            return error.code().name
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0.02)


@dataclass
class Worker:
    """The watch loop of a worker over a real server, with the scheduler's link and the step in the test's hands."""

    address: str
    link: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(is_attached=True))
    steps: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(step_age_s=0.0, failure=None))

    async def becomes(self, **expected: str) -> None:
        """Returns when both names answer so."""

        async def as_expected() -> bool:
            ready, alive = await health(self.address, WORKER), await health(self.address, rpc.LIVENESS)
            return {"ready": ready, "alive": alive} == expected

        await until(as_expected)


@pytest.fixture
async def worker(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Worker]:
    monkeypatch.setattr(worker_shell, "CHECK_S", 0.02)
    settings: Any = WorkerSettings.model_construct(step_timeout_s=1.0)
    server = rpc.Server([WORKER])
    watched = Worker(f"127.0.0.1:{await server.start('127.0.0.1:0', alive=False)}")
    outputs: Any = SimpleNamespace(take_lost=list)
    shell: Any = SimpleNamespace(
        _runner=None, _settings=settings, _link=watched.link, _steps=watched.steps, _outputs=outputs
    )
    task = asyncio.create_task(worker_shell.Worker._watch(shell, server))
    yield watched
    task.cancel()
    await server.stop(0)


async def test_a_worker_without_its_scheduler_is_alive(worker: Worker) -> None:
    await worker.becomes(ready=SERVING, alive=SERVING)
    worker.link.is_attached = False
    await worker.becomes(ready=NOT_SERVING, alive=SERVING)


async def test_a_worker_whose_step_hangs_is_not_alive(worker: Worker) -> None:
    worker.steps.step_age_s = 1.0
    await worker.becomes(ready=NOT_SERVING, alive=NOT_SERVING)
    worker.steps.step_age_s = 0.0
    await worker.becomes(ready=SERVING, alive=SERVING)


@pytest.mark.parametrize("alive", [True, False])
async def test_liveness_is_apart_from_serving(alive: bool) -> None:
    server = rpc.Server([WORKER])
    address = f"127.0.0.1:{await server.start('127.0.0.1:0', alive=alive)}"
    expected = SERVING if alive else NOT_SERVING
    for serving in (False, True):
        await server.set_serving(serving)
        assert await health(address, rpc.LIVENESS) == expected
    await server.stop(0)


async def test_the_process_of_a_worker_without_a_scheduler() -> None:
    """Alive once its model is loaded, and not ready."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [
        sys.executable,
        "-m",
        "worker_svc",
        "--runner=sim",
        f"--listen={address}",
        "--scheduler=127.0.0.1:1",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX")}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:

        async def is_alive() -> bool:
            return await health(address, rpc.LIVENESS) == SERVING

        await until(is_alive)
        assert await health(address, WORKER) == NOT_SERVING
        process.terminate()
        assert process.wait(10) == 0
    finally:
        process.kill()
