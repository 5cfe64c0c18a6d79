"""What boards cost the scheduler: one JSON object per number of boards.

    python -m signalbox.benchmarks.scheduler.board_cost

A real ring on this machine, with the sim runner, under the same closed load each time. `frontend` boards are streams
of server-sent events, as browsers hold them; `direct` ones are watches of the scheduler itself, as `signalbox top` or
as many frontends would hold them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from time import monotonic
from typing import Any

import httpx

from signalbox.benchmarks.load.driver import Limit, closed_loop
from signalbox.benchmarks.load.grpc_link import GrpcLink
from signalbox.benchmarks.load.workload import Lengths, Workload
from signalbox.benchmarks.serve.local_ring import LocalRing, free_addresses
from signalbox.board.link import watch_board
from signalbox.cli.ring.ring import DEMO_MODEL, Ring, flags

SETTLE_S = 2.0


async def read_events(client: httpx.AsyncClient, counts: list[int], number: int) -> None:
    """One browser: reads until cancelled."""
    async with client.stream("GET", "/board/events", timeout=None) as answer:
        answer.raise_for_status()
        async for chunk in answer.aiter_bytes():
            counts[number] += chunk.count(b"\n\n")


async def read_direct(scheduler: str, counts: list[int], number: int) -> None:
    """One watch of the scheduler."""
    async with aclosing(watch_board(scheduler)) as boards:
        async for _ in boards:
            counts[number] += 1


@asynccontextmanager
async def boards_open(ring: Ring, kind: str, count: int) -> AsyncIterator[list[int]]:
    """So many boards; how many snapshots each has had."""
    counts = [0] * count
    async with AsyncExitStack() as stack:
        limits = httpx.Limits(max_connections=None)
        client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=f"http://{ring.http}", limits=limits)
        )
        readers = [
            asyncio.create_task(
                read_events(client, counts, number)
                if kind == "frontend"
                else read_direct(ring.scheduler, counts, number)
            )
            for number in range(count)
        ]
        try:
            yield counts
            for reader in readers:
                if reader.done():
                    reader.result()
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)


async def measure(
    ring: Ring, running: LocalRing, args: argparse.Namespace, kind: str, count: int
) -> dict[str, Any]:
    """Processor time of scheduler and frontend, as shares of one core, with `count` boards open."""
    link = GrpcLink(ring.grpc, "sim")
    plans = Workload(Lengths(128, 128), Lengths(64, 256), 1000, f"{kind} {count}").plans()
    async with boards_open(ring, kind, count) as counts:
        load = asyncio.create_task(
            closed_loop(link, plans, args.streams, Limit(duration_s=args.seconds + 2 * SETTLE_S))
        )
        await asyncio.sleep(SETTLE_S)
        before, seen, started = running.cpu_s(), sum(counts), monotonic()
        await asyncio.sleep(args.seconds)
        after, took = running.cpu_s(), monotonic() - started
        snapshots = sum(counts) - seen
        await load
    await link.close()
    return {
        "boards": count,
        "kind": kind,
        "streams": args.streams,
        "seconds": round(took, 2),
        "snapshots_per_board_s": round(snapshots / max(count, 1) / took, 2),
        "scheduler_cpu_share": round((after["scheduler"] - before["scheduler"]) / took, 4),
        "frontend_cpu_share": round((after["frontend"] - before["frontend"]) / took, 4),
    }


def make_ring() -> Ring:
    """One of each, on free ports."""
    scheduler, http, grpc, worker = free_addresses(4)
    return Ring(
        model=DEMO_MODEL,
        served_model_name="sim",
        scheduler=scheduler,
        http=http,
        grpc=grpc,
        workers=(worker,),
        worker_flags=flags(runner="sim", num_blocks=4096, sim_base_ms=20),
    )


def main() -> None:
    """Takes turns between no boards and many, so that a change of the machine does not look like a cost."""
    parser = argparse.ArgumentParser(
        prog="python -m signalbox.benchmarks.scheduler.board_cost", description=__doc__
    )
    parser.add_argument("--boards", type=int, default=50)
    parser.add_argument("--streams", type=int, default=64, help="requests at one time")
    parser.add_argument("--seconds", type=float, default=20.0, help="per measurement")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    ring = make_ring()
    running = LocalRing(ring)

    async def work() -> None:
        for _ in range(args.repeat):
            for kind, count in (("frontend", 0), ("frontend", args.boards), ("direct", args.boards)):
                print(json.dumps(await measure(ring, running, args, kind, count)), flush=True)

    asyncio.run(running.use(work))


if __name__ == "__main__":
    main()
