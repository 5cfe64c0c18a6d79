"""`python -m tests.loop_watch [blocks] [requests]`: rings at their extremes, and each callback above the limit."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from signalbox.cli.ring.readiness import http_get
from tests.chaos.ring import Ring, Shape, open_ring, scrape
from tests.loop_watch.clients import Crowd, completion
from tests.loop_watch.report import LongCallback, Report, watching
from tests.loop_watch.watch import LIMIT_S
from tests.zygote import popen
from tests.zygote.zygote import Zygote

TREE = Path(__file__).parents[2]
NUM_BLOCKS, NUM_REQUESTS = 4_000_000, 10_000
BLOCKS = Shape(
    runner="sim",
    scheduler_flags=("--integrity-check-s=1",),
    worker_flags=(f"--num-blocks={NUM_BLOCKS}", "--num-slots=4096"),
)
REQUESTS = Shape(
    runner="sim",
    scheduler_flags=("--max-num-seqs=4096", "--max-num-batched-tokens=8192"),
    worker_flags=(
        "--num-blocks=200000",
        "--num-slots=8192",
        "--sim-base-ms=1000",
        "--max-num-batched-tokens=16384",
    ),
    frontend_flags=("--max-open-requests=20000", "--trusted-proxies=127.0.0.0/8"),
)


class Extremes:
    """What is done to a ring, and what was long meanwhile."""

    def __init__(self, report: Report) -> None:
        self._report, self._since = report, 0.0
        self.found: list[LongCallback] = []

    def begin(self) -> None:
        """The ring is ready: what its start took does not count."""
        self._since = time.time()

    def tell(self, name: str) -> None:
        """Prints what was long since the last call."""
        long = self._report.long(since=self._since)
        print(f"{name}: {len(long)} callbacks above {LIMIT_S * 1e3:.0f} ms of CPU", flush=True)
        for each in long:
            print(f"  {each}", flush=True)
        self.found += long
        self._since = time.time()


async def _settle(ring: Ring, num_requests: int, timeout_s: float = 60.0) -> None:
    """Returns when the scheduler has that many requests at least, or in time."""
    give_up = time.monotonic() + timeout_s
    while await ring.num_requests() < num_requests and time.monotonic() < give_up:
        await asyncio.sleep(0.5)


async def try_blocks(ring: Ring, extremes: Extremes) -> None:
    """Idle checks, a scheduler that is killed, a worker that is killed."""
    await asyncio.sleep(30)
    extremes.tell("idle")
    crowd = Crowd(ring.frontends[0].http)
    await crowd.come([completion(50)] * 100)
    await asyncio.sleep(5)
    extremes.tell("100 requests")
    for name in ("scheduler", "worker-0"):
        await ring.kill(name)
        await asyncio.sleep(3)
        ring.start(name)
        await ring.ready("scheduler", "worker-0", "worker-1", "frontend-0")
        await asyncio.sleep(5)
        extremes.tell(f"{name} killed")
    await crowd.leave()


async def try_requests(ring: Ring, extremes: Extremes) -> None:
    """They come, services die, all hang up."""
    frontend = ring.frontends[0]
    crowd = Crowd(frontend.http)
    await crowd.come([completion(2000)] * NUM_REQUESTS)
    await _settle(ring, NUM_REQUESTS)
    extremes.tell(f"{NUM_REQUESTS} requests come")
    for path in ("/metrics", "/board"):
        await http_get(frontend.http, path)
    for name in ("scheduler", "worker-0"):
        await scrape(ring.metrics[name])
    await ring.status()
    extremes.tell("metrics and status")
    for name in ("worker-0", "scheduler"):
        await ring.kill(name)
        await asyncio.sleep(3)
        ring.start(name)
        await ring.ready("scheduler", "worker-0", "worker-1", "frontend-0")
        await asyncio.sleep(10)
        extremes.tell(f"{name} killed")
    await crowd.leave()
    await asyncio.sleep(10)
    extremes.tell("all hang up")


Try = Callable[[Ring, Extremes], Awaitable[None]]
_TRIES: dict[str, tuple[Shape, Try]] = {"blocks": (BLOCKS, try_blocks), "requests": (REQUESTS, try_requests)}


async def _run(names: list[str], folder: Path) -> int:
    with watching(folder) as report:
        extremes = Extremes(report)
        for name in names:
            shape, work = _TRIES[name]
            async with open_ring(shape, TREE) as ring:
                extremes.begin()
                await work(ring, extremes)
        return int(bool(extremes.found))


def main() -> int:
    """Exit status 1: a callback was above the limit."""
    parser = argparse.ArgumentParser(prog="python -m tests.loop_watch", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*_TRIES, []], help="which extremes; none: all")
    names = parser.parse_args().names or list(_TRIES)
    popen.install(Zygote(os.environ))
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_run(names, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
