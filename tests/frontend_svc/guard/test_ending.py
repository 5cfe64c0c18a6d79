"""A frontend that has too little memory: what becomes of its calls, and of its process (Z5)."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import grpc
import httpx
import pytest

from frontend_svc.guard.memory import Memory
from frontend_svc.guard.sockets import PortSockets
from frontend_svc.server import Frontend
from signalbox.cli.ring.supervisor import Service, Supervisor
from signalbox.links import rpc
from signalbox.runtime.process import SHORT_OF_MEMORY_STATUS
from signalbox.v1 import frontend_pb2, generation_pb2
from signalbox.v1.frontend_pb2_grpc import GenerationServiceStub
from tests.frontend_svc.guard.test_guard import GivenMemory
from tests.frontend_svc.helpers import until
from tests.frontend_svc.scripted_cluster import Cluster, Row

END = cast(Any, grpc.aio).EOF
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel is asked as Linux is")


async def read_all(call: Any) -> tuple[list[Any], grpc.aio.AioRpcError]:
    """All messages, and the status other than OK that follows them."""
    messages: list[Any] = []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        while (message := await call.read()) is not END:
            messages.append(message)
    return messages, caught.value


async def test_each_call_has_its_end_and_the_scheduler_is_told(frontend: Frontend, cluster: Cluster) -> None:
    """The terminal event as ever, then the one status that may follow it; over HTTP the error of the stream."""
    memory, left = GivenMemory(), asyncio.Event()
    statuses: list[int] = []
    loop = asyncio.get_running_loop()

    def leave(status: int) -> None:
        statuses.append(status)
        loop.call_soon_threadsafe(left.set)

    frontend.watch(cast(Memory, memory), leave)
    url = f"http://127.0.0.1:{frontend.http_port}"
    async with (
        rpc.channel(f"127.0.0.1:{frontend.grpc_port}") as channel,
        httpx.AsyncClient(base_url=url) as http,
    ):
        stub = GenerationServiceStub(channel)
        request = frontend_pb2.GenerateRequest(text="the", sampling={"max_tokens": 9})
        call = stub.Generate(request)
        body = {"prompt": "the", "max_tokens": 9, "stream": True}
        streaming = asyncio.create_task(http.post("/v1/completions", json=body, timeout=10))
        refs = [(await cluster.scheduler.next("submit")).ref for _ in range(2)]
        for ref in refs:
            cluster.worker.emit(Row(ref.attempt, 0, [9]))
        await until(lambda: all(len(session.output) for session in frontend.table))
        memory.used = 900
        messages, status = await read_all(call)
        assert messages[0].HasField("accepted")
        ends = [message.finished for message in messages if message.HasField("finished")]
        assert [(end.reason, end.error.code) for end in ends] == [
            (generation_pb2.FINISH_REASON_ABORT, "UnavailableError")
        ]
        assert status.code() is grpc.StatusCode.UNAVAILABLE
        trailing: Any = status.trailing_metadata()
        assert dict(trailing)["retry-after"] == "1"
        assert "short of memory" in (await streaming).text
        cancelled = [(await cluster.scheduler.next("cancel")).ref for _ in range(2)]
        assert sorted(ref.attempt for ref in cancelled) == sorted(ref.attempt for ref in refs)
        refused = await http.post("/v1/completions", json={"prompt": "the"})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        await asyncio.wait_for(left.wait(), 10)
    assert set(statuses) == {SHORT_OF_MEMORY_STATUS}
    assert len(frontend.table) == 0


async def test_short_of_memory_http_takes_no_connection(frontend: Frontend) -> None:
    memory = GivenMemory()
    frontend.watch(cast(Memory, memory), lambda status: None)
    url = f"http://127.0.0.1:{frontend.http_port}/health"
    async with httpx.AsyncClient() as kept:
        assert (await kept.get(url)).status_code == 200
        memory.used = 750
        async with asyncio.timeout(10):
            while (await asyncio.to_thread(httpx.get, url)).status_code == 200:
                await asyncio.sleep(0.01)
        answer = await asyncio.to_thread(httpx.get, url)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert (await kept.get(url)).status_code == 200
        metrics = (await kept.get(url.replace("health", "metrics"))).text
        assert "signalbox_frontend_memory_ratio 0.75" in metrics
        assert 'signalbox_frontend_connections_refused_total{reason="memory"}' in metrics


def test_a_limit_below_what_it_needs_is_one_sentence(model_directory: Path) -> None:
    flags = ["--http=127.0.0.1:0", "--grpc=", f"--model={model_directory}", "--memory-limit-bytes=20000000"]
    command = [sys.executable, "-m", "frontend_svc", *flags]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "of the memory limit of 19 MiB are in use at once" in done.stderr


@pytest.mark.parametrize("is_ready", [True, False])
async def test_its_supervisor_starts_it_again_within_a_second(tmp_path: Path, is_ready: bool) -> None:
    """And later the next time; the next process knows how many have ended so. Its port is open while others start."""
    script = (
        "import os, sys, time; from signalbox.runtime.process import take_memory_ends;"
        "print('ends', take_memory_ends(), time.monotonic(), flush=True); time.sleep(0.2); os._exit(75)"
    )
    said: list[str] = []
    supervisor = Supervisor([[Service("frontend", (sys.executable, "-c", script))]], tmp_path, said.append)
    supervisor.ready = is_ready
    supervisor.start()
    watching = asyncio.create_task(supervisor.watch())
    log = tmp_path / "frontend.log"
    started = time.monotonic()
    async with asyncio.timeout(20):
        while len(lines := log.read_text().splitlines()) < 3:
            await asyncio.sleep(0.02)
    assert time.monotonic() - started < 15
    watching.cancel()
    await supervisor.stop()
    starts = [float(line.split()[2]) for line in lines[:3]]
    assert [line.split()[1] for line in lines[:3]] == ["0", "1", "2"]
    assert starts[2] - starts[1] > starts[1] - starts[0] > 0.2
    assert "frontend is started again" in said[0]


def test_a_frontend_that_is_killed_otherwise_still_ends_the_ring(tmp_path: Path) -> None:
    service = Service("frontend", (sys.executable, "-c", "raise SystemExit(3)"))
    supervisor = Supervisor([[service]], tmp_path, lambda line: None)
    supervisor.ready = True
    supervisor.start()
    with pytest.raises(Exception, match="frontend ended with status 3"):
        asyncio.run(asyncio.wait_for(supervisor.watch(), 20))


def test_ports_are_named_apart() -> None:
    """A connection of another port of this process is none of this one's."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
        socket.create_connection(one.getsockname()) as client,
        one.accept()[0] as accepted,
    ):
        client.sendall(b"12345")
        accepted.recv(5)
        (found,) = PortSockets(one.getsockname()[1]).look()
        assert (found.host, found.received_bytes) == ("127.0.0.1", 5)
        assert PortSockets(other.getsockname()[1]).look() == []
