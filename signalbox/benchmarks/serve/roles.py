"""Long prompts beside chats: two plain workers, and one that computes prompts beside one that decodes.

    python -m signalbox.benchmarks.serve.roles --model DIR --rates 0.5 1 2 --seconds 30 --rounds 2

Requests come at random times, one in five of them with a long prompt and a short answer, the others the other way
round. `plain`: both workers do both. `roles`: a request is handed over after its prompt. In each round each way has the
same requests, in a ring of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Iterator

from signalbox.benchmarks.load.driver import Limit, open_loop
from signalbox.benchmarks.load.grpc_link import GrpcLink
from signalbox.benchmarks.load.metrics_page import read_page
from signalbox.benchmarks.load.summary import Slo, summarize
from signalbox.benchmarks.load.workload import Lengths, Plan, Workload, arrivals
from signalbox.benchmarks.serve.command import MODEL_NAME, read_vocab_size
from signalbox.benchmarks.serve.local_ring import LocalRing
from signalbox.cli.admin_client import admin_client
from signalbox.cli.models.name import model_directory
from signalbox.cli.ring.ring import Ring
from signalbox.cli.ring.supervisor import free_addresses
from signalbox.protocol.enums import WorkerRole

LONG = (Lengths(800, 1200), Lengths(8, 24))
CHAT = (Lengths(16, 96), Lengths(48, 128))
LONG_SHARE = 0.2
WAYS = ("plain", "roles")
SLO = Slo(ttft_ms=4000, itl_ms=150)
FIGURES = ("ttft_ms_p50", "ttft_ms_p99", "itl_ms_p50", "itl_ms_p99", "slo_share", "output_tok_s", "failed")


def main() -> int:
    """Prints one line for each way, rate and round."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=model_directory, required=True)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.5, 1.0, 2.0], help="requests per second")
    parser.add_argument("--seconds", type=float, default=30.0, help="in which requests come")
    parser.add_argument("--rounds", type=int, default=2)
    return asyncio.run(_measure(parser.parse_args()))


async def _measure(args: argparse.Namespace) -> int:
    for number in range(args.rounds):
        for rate in args.rates:
            for way in WAYS[:: -1 if number % 2 else 1]:
                figures = await _with_ring(args, way, rate, f"{number} {rate}")
                print(json.dumps({"round": number, "rate": rate, "way": way} | figures), flush=True)
    return 0


async def _with_ring(
    args: argparse.Namespace, way: str, rate: float, seed: str
) -> dict[str, float | int | str | None]:
    scheduler, http, grpc, *workers, metrics = free_addresses(6)
    ring = Ring(
        args.model.absolute(),
        MODEL_NAME,
        scheduler,
        http,
        grpc,
        tuple(workers),
        scheduler_flags=(
            "--max-num-batched-tokens=512",
            f"--metrics={metrics}",
        ),
        worker_flags=("--hand-off", "--threads=1", "--num-blocks=1024", "--max-model-len=2048"),
    )

    async def run() -> dict[str, float | int | str | None]:
        if way == "roles":
            async with admin_client(scheduler) as admin:
                await admin.set_role("worker-0", WorkerRole.PREFILL)
                await admin.set_role("worker-1", WorkerRole.DECODE)
        link = GrpcLink(grpc, MODEL_NAME)
        plans = _plans(read_vocab_size(args.model), seed)
        try:
            await open_loop(
                link, _plans(read_vocab_size(args.model), "warm"), iter((0.0, 0.1, 0.2)), Limit(3)
            )
            records, window = await open_loop(link, plans, arrivals(rate, seed), Limit(None, args.seconds))
        finally:
            await link.close()
        figures = summarize(records, window, SLO)
        found = {name: figures[name] for name in ("requests", *FIGURES)}
        return found | {"handed_over": await _moved(metrics)}  # type: ignore[return-value]

    return await LocalRing(ring).use(run)


def _plans(vocab_size: int, seed: str) -> Iterator[Plan]:
    """Requests of both kinds, in random order."""
    kinds = [Workload(*lengths, vocab_size, f"{seed} {lengths}").plans() for lengths in (LONG, CHAT)]
    dice = random.Random(f"kinds {seed}")
    while True:
        yield next(kinds[dice.random() >= LONG_SHARE])


async def _moved(metrics: str) -> int:
    page = await read_page(metrics)
    name = 'signalbox_scheduler_handoffs_total{event="committed"}'
    return sum(int(float(line.split()[-1])) for line in page.splitlines() if line.startswith(name))


if __name__ == "__main__":
    raise SystemExit(main())
