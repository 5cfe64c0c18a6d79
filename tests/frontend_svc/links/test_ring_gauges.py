"""The ring's load under vLLM's names, from a real scheduler."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from frontend_svc.config import FrontendSettings
from frontend_svc.links.ring_gauges import load_of
from frontend_svc.server import Frontend
from signalbox.board.link import read_board
from signalbox.v1 import admin_pb2
from tests.scheduler_svc.attached import dial, make_hello, serve

NAMES = ("vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc")


def test_preempted_requests_wait_and_cached_blocks_are_free() -> None:
    """The gauges of pickers are vLLM's in meaning, too; a worker that is gone has no blocks to offer."""
    two = [
        admin_pb2.BoardWorker(
            worker_id="a",
            attached=True,
            num_running=3,
            num_preempted=1,
            num_blocks=60,
            num_free_blocks=30,
            num_cached_blocks=15,
        ),
        admin_pb2.BoardWorker(worker_id="b", attached=True, num_running=1, num_blocks=40, num_free_blocks=30),
        admin_pb2.BoardWorker(worker_id="gone", attached=False, num_running=9, num_blocks=100),
    ]
    load = load_of(read_board(admin_pb2.WatchBoardResponse(num_waiting=5, workers=two)))
    assert {name: value for name, (_, value) in load.items()} == dict(zip(NAMES, (6, 4, 0.25), strict=True))


def test_a_ring_without_workers_is_full() -> None:
    load = load_of(read_board(admin_pb2.WatchBoardResponse()))
    assert load["vllm:kv_cache_usage_perc"][1] == 1.0


async def until_shown(http: httpx.AsyncClient, *expected: float) -> None:
    """Returns when /metrics has these values of the three gauges, or none of them."""
    async with asyncio.timeout(10):
        while True:
            lines = (await http.get("/metrics")).text.splitlines()
            shown = dict(line.split() for line in lines if line.startswith("vllm:"))
            assert shown.keys() <= set(NAMES)
            if [float(shown[name]) for name in NAMES if name in shown] == list(expected):
                return
            await asyncio.sleep(0.02)


async def test_frontends_show_them_while_there_is_a_scheduler(model_directory: Path) -> None:
    async with serve() as (_, address):
        listen = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
        frontend = Frontend(
            FrontendSettings(scheduler=address, model=model_directory, ring_metrics=True, drain_s=0, **listen)
        )
        await frontend.start()
        http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}")
        async with dial(address) as stub:
            await until_shown(http, 0, 0, 1)
            worker = stub.AttachWorker()
            await worker.write(make_hello("w"))
            await worker.read()
            await until_shown(http, 0, 0, 0)
            worker.cancel()
    try:
        await until_shown(http)
    finally:
        await http.aclose()
        await frontend.stop()


async def test_without_the_setting_there_are_none(http: httpx.AsyncClient) -> None:
    assert "vllm:" not in (await http.get("/metrics")).text
