"""The stage `ring`: scheduler, worker and frontend as processes of their own, and clients that call them over HTTP."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from benchmarks.gpu.context import Context
from benchmarks.gpu.models import model_of
from signalbox.benchmarks.load.http_link import HttpLink
from signalbox.benchmarks.load.metrics_page import read_page
from signalbox.benchmarks.serve.batch import measure_batch
from signalbox.benchmarks.serve.command import read_vocab_size
from signalbox.benchmarks.serve.local_ring import LocalRing
from signalbox.benchmarks.serve.reference import Shape
from signalbox.cli.ring.ring import Ring
from signalbox.cli.ring.supervisor import free_addresses
from signalbox.telemetry import attributes as names

NAME = "bench"


@dataclass(frozen=True)
class RingSizes:
    """How large the batches are."""

    streams: tuple[int, ...]
    prompt_tokens: int
    output_tokens: int
    worker_flags: tuple[str, ...]


GPU = RingSizes((1, 32, 128, 256), 512, 128, ("--device=cuda", "--max-model-len=4096"))
CPU = RingSizes((1, 2), 8, 4, ("--device=cpu", "--num-blocks=64", "--block-size=4", "--threads=1"))
"""Without Triton: services start no interpreter."""
WARM_UP_TOKENS = 8


def run(context: Context) -> None:
    """Writes a line for each number of streams, and one of the start."""
    sizes = GPU if context.order.is_gpu else CPU
    path = model_of(context.order)
    scheduler, http, grpc, worker, metrics = free_addresses(5)
    ring = LocalRing(
        Ring(
            path.absolute(),
            NAME,
            scheduler,
            http,
            grpc,
            (worker,),
            worker_flags=(*sizes.worker_flags, f"--metrics={metrics}"),
        )
    )
    started = time.monotonic()

    async def measure() -> None:
        ready_s = round(time.monotonic() - started, 1)
        warm_s = await _metric(metrics, names.METRIC_WORKER_WARM_UP)
        context.line("ready", model=path.name, ready_s=ready_s, warm_s=warm_s)
        link = HttpLink(f"http://{http}", NAME)
        vocab_size = read_vocab_size(path)
        for streams in sizes.streams:
            for num_tokens in (WARM_UP_TOKENS, sizes.output_tokens):
                shape = Shape(streams, sizes.prompt_tokens, min(num_tokens, sizes.output_tokens))
                figures = await measure_batch(
                    link,
                    shape,
                    vocab_size=vocab_size,
                    seed=f"{streams} {num_tokens}",
                    worker_metrics=metrics,
                    frontend=http,
                    cpu_s=ring.cpu_s,
                )
            context.line("ring", streams=streams, **figures)
        late = await _metric(metrics, names.METRIC_WORKER_LATE_COMPILES)
        if late:
            context.fail(f"{late:g} kernel variants were compiled while serving")
        await link.close()

    asyncio.run(ring.use(measure))


async def _metric(address: str, name: str) -> float | None:
    """A figure of the worker without labels; None: it has none such, as on a CPU."""
    for line in (await read_page(address)).splitlines():
        found, _, value = line.partition(" ")
        if found in (name, f"{name}_total"):
            return round(float(value), 1)
    return None
