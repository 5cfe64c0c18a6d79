"""One measured batch on a local ring: all streams start together and make the same number of tokens."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import islice

from signalbox.benchmarks.load.deliveries import read_deliveries
from signalbox.benchmarks.load.driver import Limit, Link, closed_loop
from signalbox.benchmarks.load.record import Record
from signalbox.benchmarks.load.self_watch import SelfWatch
from signalbox.benchmarks.load.summary import Figures, percentiles_ms
from signalbox.benchmarks.load.worker_metrics import read_totals
from signalbox.benchmarks.load.workload import Lengths, Workload
from signalbox.benchmarks.serve.reference import Shape
from signalbox.errors import InternalError, from_code


async def measure_batch(
    link: Link,
    shape: Shape,
    *,
    vocab_size: int,
    seed: str,
    worker_metrics: str,
    frontend: str,
    cpu_s: Callable[[], dict[str, float]],
) -> Figures:
    """Runs the batch once; `worker_metrics` and `frontend` are host:port with /metrics. Raises the error of a request
    that fails: the figures would be of something else."""
    lengths = (
        Lengths(shape.prompt_tokens, shape.prompt_tokens),
        Lengths(shape.output_tokens, shape.output_tokens),
    )
    plans = list(islice(Workload(*lengths, vocab_size, seed).plans(), shape.streams))
    watch = SelfWatch()
    steps, deliveries, cpu = await read_totals(worker_metrics), await read_deliveries(frontend), cpu_s()
    async with watch.running():
        records, (start, end) = await closed_loop(link, iter(plans), shape.streams, Limit(shape.streams))
    cpu_after = cpu_s()
    steps = (await read_totals(worker_metrics)).since(steps)
    deliveries = (await read_deliveries(frontend)).since(deliveries)
    _check(records, shape)
    client = watch.figures()
    num_tokens = shape.streams * shape.output_tokens
    frontend_s = cpu_after.get("frontend", 0.0) - cpu.get("frontend", 0.0)
    return {
        "output_tok_s": round(num_tokens / (end - start), 1),
        "decode_tok_s": decode_rate(records),
        **percentiles_ms("ttft", [record.ttft_s for record in records]),
        **percentiles_ms("itl", [gap for record in records for gap in record.gaps_s()]),
        **percentiles_ms("tpot", [record.tpot_s for record in records if record.tpot_s is not None]),
        **deliveries.figures(),
        "messages_per_token": round(sum(len(record.arrivals) for record in records) / num_tokens, 4),
        "frontend_tok_cpu_s": round(num_tokens / frontend_s) if frontend_s else None,
        "duration_s": round(end - start, 3),
        **steps.figures(end - start),
        **{f"cpu_s_{name}": round(cpu_after[name] - before, 2) for name, before in cpu.items()},
        "cpu_s_client": client["client_cpu_s"],
        "client_bottleneck": client["client_bottleneck"],
    }


def decode_rate(records: Sequence[Record]) -> float | None:
    """Tokens per second while all streams decode: from the last first token to the first end. None when there is no
    such time."""
    start = max(record.arrivals[0] for record in records)
    end = min(record.arrivals[-1] for record in records)
    if end <= start:
        return None
    pairs = (pair for record in records for pair in zip(record.arrivals, record.counts, strict=True))
    return round(sum(count for at, count in pairs if start < at <= end) / (end - start), 1)


def median_of(runs: Sequence[Figures]) -> Figures:
    """Median of each number over the runs; of what is no number, the first that is not None."""
    return {name: _middle([run[name] for run in runs]) for name in runs[0]}


def _middle(values: Sequence[object]) -> object:
    numbers = [value for value in values if isinstance(value, int | float)]
    if numbers:
        middle = statistics.median(numbers)
        return int(middle) if all(isinstance(number, int) for number in numbers) else round(middle, 4)
    return next((value for value in values if value is not None), None)


def _check(records: Sequence[Record], shape: Shape) -> None:
    for record in records:
        if not record.succeeded:
            raise from_code(record.error, f"a request failed: {record.error_message or 'no output came'}")
        if record.num_output_tokens != shape.output_tokens:
            made = record.num_output_tokens
            raise InternalError(
                f"a request made {made} of {shape.output_tokens} tokens: do they fit the model's context?"
            )
