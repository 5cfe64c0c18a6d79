"""`python -m tests.loop_watch [NAME...]`: rings at their extremes, and each callback above the limit."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from signalbox.api_keys import make_key
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
NUM_TENANTS, TENANT_REQUESTS = 1000, 4
KEYS, KEY_TEXTS = "keys.toml", "keys.txt"
_SWEEP = "Collector.sweep"
_OF_A_FORK = (
    "\n    is not counted: a fork of the zygote has some 390,000 objects of imports, a frontend 75,000"
)


def blocks_shape(folder: Path) -> Shape:
    """Of a ring with many blocks."""
    return BLOCKS


def requests_shape(folder: Path) -> Shape:
    """Of a ring for many requests."""
    return REQUESTS


def tenants_shape(folder: Path) -> Shape:
    """Of a ring with a key for each of many tenants, who have fair shares."""
    keys = [make_key() for _ in range(NUM_TENANTS)]
    lines = [f'{key.key_id} = {{ hash = "{key.hash}", tenant = "t{n}" }}\n' for n, key in enumerate(keys)]
    (folder / KEYS).write_text("".join(lines))
    (folder / KEY_TEXTS).write_text("\n".join(key.text for key in keys))
    return replace(
        REQUESTS,
        scheduler_flags=(*REQUESTS.scheduler_flags, "--policy=fair"),
        frontend_flags=(*REQUESTS.frontend_flags, f"--key-file={folder / KEYS}"),
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
        sweeps = [each for each in long if each.name == _SWEEP]
        print(f"{name}: {len(long) - len(sweeps)} callbacks above {LIMIT_S * 1e3:.0f} ms of CPU", flush=True)
        for each in long:
            print(f"  {each}{_OF_A_FORK if each in sweeps else ''}", flush=True)
            self.found += [] if each in sweeps else [each]
        self._since = time.time()


async def _settle(ring: Ring, num_requests: int, timeout_s: float = 60.0) -> None:
    """Returns when the scheduler has that many requests at least, or in time."""
    give_up = time.monotonic() + timeout_s
    while await ring.num_requests() < num_requests and time.monotonic() < give_up:
        await asyncio.sleep(0.5)


async def try_blocks(ring: Ring, extremes: Extremes, folder: Path) -> None:
    """Idle checks, a scheduler that is killed, a worker that is killed."""
    await asyncio.sleep(30)
    extremes.tell("idle")
    crowd = Crowd(ring.frontends[0].http)
    await crowd.come([completion(50)] * 100)
    await asyncio.sleep(5)
    extremes.tell("100 requests")
    await _kill_each(ring, extremes, ("scheduler", "worker-0"), 5)
    await crowd.leave()


async def try_tenants(ring: Ring, extremes: Extremes, folder: Path) -> None:
    """Each comes with some requests, their keys are read again, services die, all hang up."""
    crowd = Crowd(ring.frontends[0].http)
    keys = (folder / KEY_TEXTS).read_text().split()
    for _ in range(TENANT_REQUESTS):
        await crowd.come([completion(2000)] * NUM_TENANTS, keys=keys)
    await _settle(ring, NUM_TENANTS * TENANT_REQUESTS)
    extremes.tell(f"{NUM_TENANTS} tenants, {TENANT_REQUESTS} requests of each")
    (folder / KEYS).write_text((folder / KEYS).read_text() + "# changed\n")
    for name in ("scheduler", "worker-0"):
        await scrape(ring.metrics[name])
    await asyncio.sleep(10)
    extremes.tell("keys read again, metrics")
    await _kill_each(ring, extremes, ("worker-0", "scheduler"), 10)
    await crowd.leave()
    await asyncio.sleep(10)
    extremes.tell("all hang up")


async def _kill_each(ring: Ring, extremes: Extremes, names: Sequence[str], settle_s: float) -> None:
    for name in names:
        await ring.kill(name)
        await asyncio.sleep(3)
        ring.start(name)
        await ring.ready("scheduler", "worker-0", "worker-1", "frontend-0")
        await asyncio.sleep(settle_s)
        extremes.tell(f"{name} killed")


async def try_requests(ring: Ring, extremes: Extremes, folder: Path) -> None:
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
    await _kill_each(ring, extremes, ("worker-0", "scheduler"), 10)
    await crowd.leave()
    await asyncio.sleep(10)
    extremes.tell("all hang up")


Try = tuple[Callable[[Path], Shape], Callable[[Ring, Extremes, Path], Awaitable[None]]]
_TRIES: dict[str, Try] = {
    "blocks": (blocks_shape, try_blocks),
    "requests": (requests_shape, try_requests),
    "tenants": (tenants_shape, try_tenants),
}
"""The ring of each, and what is done to it; both are given a folder for files."""


async def _run(names: list[str], folder: Path) -> int:
    with watching(folder) as report:
        extremes = Extremes(report)
        for name in names:
            make_shape, work = _TRIES[name]
            async with open_ring(make_shape(folder), TREE) as ring:
                extremes.begin()
                await work(ring, extremes, folder)
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
