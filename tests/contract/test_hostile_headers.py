"""Headers that are small on the wire and large when they are read, at the public gRPC port (AK8).

A reduced form of `python -m tests.contract.strangers_bench`, and the same behind the gateway of docs/nginx-grpc.conf.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from signalbox.benchmarks.serve.local_ring import LocalRing
from signalbox.cli.ring.supervisor import free_addresses
from signalbox.client import Client
from tests.contract.strangers_bench import (
    Outcome,
    ask_until_answered,
    make_ring,
    measure,
    resident_mib,
)

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel is asked as Linux is"),
    pytest.mark.fresh,  # a fork holds as much as it is to be limited to
]
ROOT = Path(__file__).resolve().parents[2]
LIMIT_BYTES = 320 << 20
MOST_ENDS = 4
"""Processes that a flood of 4 s can end, and one more: the third starts 2 s after the second did, the fourth 4 s after
the third (`Supervisor`)."""
FLOOD = ("--names=3000", "--connections=16")
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


async def test_strangers_end_neither_streams_nor_calls_of_others() -> None:
    """Without the watch the frontend takes about a gigabyte, or is killed where it may not. How often it starts again,
    and how long a call takes, the bench tells."""
    ring = make_ring(LIMIT_BYTES)

    async def work() -> Outcome:
        return await measure(ring, FLOOD, seconds=4, num_calls=4, call_s=60)

    seen = await LocalRing(ring).use(work)  # raises when a process ends otherwise than for memory, in order
    assert (len(seen.calls_s), seen.failed) == (4, 0)
    assert len(seen.gaps_s) > 50
    assert seen.restarts <= MOST_ENDS
    assert seen.most_mib < LIMIT_BYTES >> 20


@contextmanager
def nginx(folder: Path, frontend: str, at: str) -> Iterator[None]:
    """The gateway as the documents have it, in front of a frontend, on ports of the test."""
    text = (ROOT / "docs" / "nginx-grpc.conf").read_text()
    assert text.count("127.0.0.1:7301") == text.count("127.0.0.1:7391") == 1
    text = text.replace("127.0.0.1:7301", frontend).replace("127.0.0.1:7391", at)
    places = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    own = "".join(f"    {name}_temp_path {folder}/{name};\n" for name in places)
    (folder / "nginx.conf").write_text(text.replace("http {\n", "http {\n" + own, 1))
    assert NGINX is not None
    command = [NGINX, "-p", str(folder), "-c", "nginx.conf", "-e", "stderr", "-g", "daemon off;"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
async def test_behind_the_gateway_they_cost_a_frontend_nothing(tmp_path: Path) -> None:
    ring = make_ring(LIMIT_BYTES)
    ring = replace(ring, frontend_flags=(*ring.frontend_flags, "--trusted-proxies=127.0.0.1"))
    (gateway,) = free_addresses(1)

    async def work() -> tuple[Outcome, int]:
        before = await resident_mib(ring)
        with nginx(tmp_path, ring.grpc, gateway):
            async with Client(gateway, api_key="") as client:
                assert await ask_until_answered(client)
            behind = replace(ring, grpc=gateway)
            return await measure(behind, FLOOD, seconds=3, num_calls=3, watched=ring), before

    async with asyncio.timeout(100):
        seen, before = await LocalRing(ring).use(work)
    assert (len(seen.calls_s), seen.failed, seen.restarts) == (3, 0, 0)
    assert seen.most_mib < before + 40
