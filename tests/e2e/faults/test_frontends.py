"""`signalbox up --frontends N`: processes that share both ports."""

from __future__ import annotations

import asyncio
import json
import urllib.request

import psutil

from signalbox.client import Client
from tests.e2e.conftest import Launch, RunningRing

SIM = ("--no-proof", "--runner", "sim", "--worker-set", "sim-base-ms=1", "--frontends", "2")


def completion(ring: RunningRing) -> None:
    body = {"model": "demo", "prompt": [1, 2, 3], "max_tokens": 2, "temperature": 0}
    request = urllib.request.Request(
        f"{ring.url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        assert response.status == 200


def served(ring: RunningRing) -> dict[str, float]:
    """Ended requests of each frontend, by name: each scrape reaches any one of them."""
    found: dict[str, float] = {}
    for _ in range(60):
        with urllib.request.urlopen(f"{ring.url}/metrics", timeout=20) as response:
            lines = response.read().decode().splitlines()
        (info,) = (line for line in lines if line.startswith("signalbox_frontend_info{"))
        name = info.partition('name="')[2].partition('"')[0]
        ended = [line for line in lines if line.startswith("signalbox_frontend_requests_total{")]
        found[name] = sum(float(line.rpartition(" ")[2]) for line in ended)
        if len(found) == 2:
            break
    return found


async def test_both_get_requests_and_all_stop(launch_ring: Launch) -> None:
    ring = launch_ring(*SIM)
    ring.wait_for("signalbox is up")
    output = "".join(ring.output)
    assert "frontend-0 is ready" in output and "frontend-1 is ready" in output

    for _ in range(20):
        await asyncio.to_thread(completion, ring)
    over_http = await asyncio.to_thread(served, ring)
    assert set(over_http) == {"frontend-0", "frontend-1"}
    assert min(over_http.values()) > 0
    assert sum(over_http.values()) == 20

    for _ in range(20):
        async with Client(ring.grpc) as client:
            await client.generate([1, 2, 3], max_tokens=2, temperature=0).result()
    after = await asyncio.to_thread(served, ring)
    assert min(after[name] - over_http[name] for name in after) > 0
    assert sum(after.values()) == 40

    children = ring.children()
    assert sum("frontend_svc" in child.cmdline() for child in children) == 2
    assert ring.stop() == 0
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
