"""What streams see of a batch beside them: time per output token and time to the first one, with and without, in turns.

    python -m tests.bench.beside_batch --turns 6

A ring of its own: the real scheduler and frontend, and the sim runner, whose steps take `--base-ms` and 0.02 ms per
token. One JSON object per line: the settings, then a line for each kind of turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import openai

from signalbox.benchmarks.serve.local_ring import LocalRing
from signalbox.cli.ring.ring import DEMO_MODEL, Ring
from signalbox.cli.ring.supervisor import free_addresses

PROMPT = "def quicksort(items):"
BATCH_TOKENS, STREAM_TOKENS = 200, 100


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--turns", type=int, default=6, help="of each kind (%(default)s)")
    add("--turn-s", type=float, default=12.0, help="seconds of each (%(default)s)")
    add("--streams", type=int, default=8, help="that run at once (%(default)s)")
    add("--base-ms", type=float, default=16.0, help="a step of the worker without tokens (%(default)s)")
    add("--beside", type=int, default=4, help="lines that begin beside other requests (%(default)s)")
    args = parser.parse_args()
    scheduler, worker, http, grpc = free_addresses(4)
    with tempfile.TemporaryDirectory() as folder:
        ring = Ring(
            model=DEMO_MODEL,
            served_model_name="demo",
            scheduler=scheduler,
            http=http,
            grpc=grpc,
            workers=(worker,),
            scheduler_flags=("--policy=priority",),
            worker_flags=("--runner=sim", f"--sim-base-ms={args.base_ms}"),
            frontend_flags=(
                f"--files-dir={Path(folder) / 'files'}",
                f"--batch-concurrency-beside={args.beside}",
            ),
        )
        print(json.dumps(vars(args)))
        asyncio.run(LocalRing(ring).use(lambda: measure(f"http://{http}/v1", args)))


async def measure(url: str, args: argparse.Namespace) -> None:
    """Turns without and with a batch."""
    figures: dict[str, list[tuple[float, float]]] = {"alone": [], "beside": []}
    lines = 0
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=600) as sdk:
        await turn(url, args, 3.0)
        for _ in range(args.turns):
            figures["alone"] += await turn(url, args, args.turn_s)
            batch = await start_batch(sdk)
            figures["beside"] += await turn(url, args, args.turn_s)
            lines += await cancel(sdk, batch)
    for kind, seen in figures.items():
        told: dict[str, Any] = {"kind": kind, "requests": len(seen)}
        for name, values in zip(("tpot_ms", "ttft_ms"), zip(*seen, strict=True), strict=True):
            told |= {
                f"{name}_p50": round(quantile(values, 50), 2),
                f"{name}_p99": round(quantile(values, 99), 2),
            }
        print(json.dumps(told | ({"batch_lines": lines} if kind == "beside" else {})))


def quantile(values: Any, percent: int) -> float:
    """In milliseconds."""
    return float(statistics.quantiles(values, n=100, method="inclusive")[percent - 1] * 1e3)


async def start_batch(sdk: openai.AsyncOpenAI) -> str:
    """A batch that outlasts a turn; returns when its first lines run."""
    body = {"model": "demo", "prompt": PROMPT, "max_tokens": BATCH_TOKENS, "ignore_eos": True}
    lines = b"".join(
        json.dumps({"custom_id": f"c{n}", "method": "POST", "url": "/v1/completions", "body": body}).encode()
        + b"\n"
        for n in range(5000)
    )
    file = await sdk.files.create(file=("in.jsonl", lines), purpose="batch")
    batch = await sdk.batches.create(
        input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"
    )
    while (await sdk.batches.retrieve(batch.id)).status == "validating":
        await asyncio.sleep(0.1)
    return batch.id


async def cancel(sdk: openai.AsyncOpenAI, batch_id: str) -> int:
    """Ends the batch; returns how many lines it had answered."""
    await sdk.batches.cancel(batch_id)
    while (batch := await sdk.batches.retrieve(batch_id)).status != "cancelled":
        await asyncio.sleep(0.1)
    assert batch.request_counts is not None
    return batch.request_counts.completed


async def turn(url: str, args: argparse.Namespace, duration_s: float) -> list[tuple[float, float]]:
    """(time per output token, time to the first) of each request, in seconds."""
    seen: list[tuple[float, float]] = []
    stop_at = time.perf_counter() + duration_s

    async def stream(http: httpx.AsyncClient) -> None:
        while time.perf_counter() < stop_at:
            seen.append(await ask(http))
            await asyncio.sleep(0.05)

    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        await asyncio.gather(*(stream(http) for _ in range(args.streams)))
    return seen


async def ask(http: httpx.AsyncClient) -> tuple[float, float]:
    """One stream."""
    body = {
        "model": "demo",
        "prompt": PROMPT,
        "max_tokens": STREAM_TOKENS,
        "ignore_eos": True,
        "stream": True,
    }
    start = time.perf_counter()
    arrivals: list[float] = []
    async with http.stream("POST", "completions", json=body) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                arrivals.append(time.perf_counter())
    return (arrivals[-1] - arrivals[0]) / (STREAM_TOKENS - 1), arrivals[0] - start


if __name__ == "__main__":
    main()
