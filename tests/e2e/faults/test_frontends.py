"""`signalbox up --frontends N`: processes that share both ports."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request

import psutil
import pytest

from signalbox.client import Client
from tests.e2e.conftest import Launch, RunningRing
from tests.ports import free_ports

SIM = ("--no-proof", "--runner", "sim", "--worker-set", "sim-base-ms=1", "--frontends", "2")


def completion(ring: RunningRing) -> None:
    body = {"model": "demo", "prompt": [1, 2, 3], "max_tokens": 2, "temperature": 0}
    request = urllib.request.Request(
        f"{ring.url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        assert response.status == 200


def served(addresses: list[str]) -> list[float]:
    """Ended requests of each frontend."""
    found = []
    for address in addresses:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as response:
            lines = response.read().decode().splitlines()
        ended = [line for line in lines if line.startswith("signalbox_frontend_requests_total{")]
        found.append(sum(float(line.rpartition(" ")[2]) for line in ended))
    return found


async def test_both_get_requests_and_all_stop(launch_ring: Launch) -> None:
    # The scheduler, the worker and the two frontends.
    *others, first, second = free_ports(4)
    ring = launch_ring(*SIM, "--metrics", f"127.0.0.1:{others[0]}")
    addresses = [f"127.0.0.1:{port}" for port in (first, second)]
    ring.wait_for("signalbox is up")
    output = "".join(ring.output)
    assert "frontend-0 is ready" in output and "frontend-1 is ready" in output

    for _ in range(20):
        await asyncio.to_thread(completion, ring)
    over_http = await asyncio.to_thread(served, addresses)
    assert min(over_http) > 0
    assert sum(over_http) == 20
    with pytest.raises(urllib.error.HTTPError, match="404"):  # one of the two, and nobody would know which
        await asyncio.to_thread(urllib.request.urlopen, f"{ring.url}/metrics", timeout=20)

    for _ in range(20):
        async with Client(ring.grpc) as client:
            await client.generate([1, 2, 3], max_tokens=2, temperature=0).result()
    after = await asyncio.to_thread(served, addresses)
    assert min(now - before for now, before in zip(after, over_http, strict=True)) > 0
    assert sum(after) == 40

    children = ring.children()
    assert sum("frontend_svc" in child.cmdline() for child in children) == 2
    assert ring.stop() == 0
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
