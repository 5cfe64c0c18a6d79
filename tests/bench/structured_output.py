"""What forms cost the requests beside them, and those under them: one ring with the demo model, loads that take turns.

    python -m tests.bench.structured_output --rounds 9

Prints one JSON object per experiment.

`compile`: free streams run while a request comes every `--every-ms`. The gaps between the tokens of the free streams,
in three kinds of runs: none comes (`alone`), one under a schema of 5 kB that was seen before (`known`), one under a
schema of that size that nobody has seen (`new`). `p99_new_over_known` is what compiling does, `p99_new_over_alone` what
the request itself does, too: medians over rounds of adjacent runs. A run of 256 tokens has a few hundred steps: at four
requests a second, steps that a compilation slows down are more than one in a hundred, and the 99th percentile shows it.

`throughput`: all streams free, or all under one schema that no output of this length completes. `ratio` is the
throughput under the schema over the free one, again the median over rounds.

With --null no schema is new, and no output has one: what the ratios are then is the noise of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from itertools import count
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from signalbox.client import Client, FinishReason
from tests.bench.rings import start
from tests.bench.speculation import PYTHON
from tests.e2e.conftest import RunningRing

SCHEMA_BYTES = 5000
DRAWS: dict[str, dict[str, Any]] = {"greedy": {"temperature": 0}, "sampled": {"temperature": 1.0}}
GREEDY = DRAWS["greedy"]
FREE = {"ignore_eos": True}
T = TypeVar("T")


def make_schema(number: int) -> str:
    """An object of many strings and numbers, another one for each number."""
    properties: dict[str, Any] = {}
    while len(json.dumps({"properties": properties, "required": list(properties)})) < SCHEMA_BYTES:
        name = f"field_{number}_{len(properties)}"
        properties[name] = (
            {"type": "string", "maxLength": 8 + len(properties)}
            if len(properties) % 2
            else {"type": "integer", "minimum": 0, "maximum": 10 * len(properties)}
        )
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return json.dumps(schema | {"additionalProperties": False})


ENTRY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "size": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"enum": ["old", "new", None]}, "maxItems": 3},
    },
    "required": ["name", "size", "tags"],
    "additionalProperties": False,
}
LONG = json.dumps({"type": "array", "items": ENTRY, "minItems": 400})


class Forms:
    """Schemas for the requests that come while others run."""

    def __init__(self, is_null: bool) -> None:
        self._numbers = count(1)
        self._is_null = is_null

    def take(self, kind: str) -> str:
        """For the next request."""
        return make_schema(next(self._numbers) if kind == "new" and not self._is_null else 0)


async def stream(client: Client, prompt: str, **options: Any) -> list[float]:
    """When tokens came, in seconds. The output must be as long as was asked for."""
    times = []
    async for delta in client.generate(prompt, **options):
        if delta.token_ids:
            times.append(time.perf_counter())
        if delta.finished is not None:
            assert delta.finished.reason == FinishReason.LENGTH, delta.finished
    return times


async def streams(client: Client, args: argparse.Namespace, **options: Any) -> list[list[float]]:
    """When the tokens of each of the streams came."""
    prompts = (PYTHON[number % len(PYTHON)] + f"  # {number}\n" for number in range(args.streams))
    calls = (
        stream(client, prompt, seed=seed, max_tokens=args.tokens, **options)
        for seed, prompt in enumerate(prompts)
    )
    return list(await asyncio.gather(*calls))


def gaps_of(times: list[list[float]]) -> NDArray[np.float64]:
    """Milliseconds between the tokens of a stream, while all streams run."""
    begin, end = max(each[0] for each in times), min(each[-1] for each in times)
    if end <= begin:
        raise ValueError("a stream had ended before all had begun: more --tokens are needed")
    inside = [[at for at in each if begin <= at <= end] for each in times]
    return np.concatenate([np.diff(each) for each in inside]) * 1e3


async def take_turns(rounds: int, runs: dict[str, Callable[[], Awaitable[T]]]) -> dict[str, list[T]]:
    """What each of `runs` came to. Who goes first changes from round to round; the first round is not counted."""
    names, results = list(runs), {name: list[T]() for name in runs}
    for round_ in range(-1, rounds):
        for offset in range(len(names)):
            name = names[(round_ + offset) % len(names)]
            result = await runs[name]()
            if round_ >= 0:
                results[name].append(result)
    return results


def ratio_of(above: list[float], below: list[float]) -> tuple[float, list[float]]:
    """The median over rounds, and all of them."""
    ratios = sorted(a / b for a, b in zip(above, below, strict=True))
    return round(statistics.median(ratios), 4), [round(ratio, 4) for ratio in ratios]


async def visit(
    client: Client, args: argparse.Namespace, kind: str, forms: Forms, waits: list[float]
) -> None:
    """Requests under schemas come, until cancelled. How long each waited for its token is in `waits`, in seconds."""
    for number in count():
        started = time.perf_counter()
        form = {"json_schema": forms.take(kind)}
        await stream(client, PYTHON[number % len(PYTHON)], max_tokens=1, structured_output=form, **GREEDY)
        waits.append(time.perf_counter() - started)
        await asyncio.sleep(max(args.every_ms / 1e3 - waits[-1], 0))


async def run_compile(client: Client, args: argparse.Namespace) -> dict[str, Any]:
    """Gaps between tokens beside requests under known and new schemas."""
    forms = Forms(args.null)
    waits: dict[str, list[float]] = {"alone": [], "known": [], "new": []}

    async def run(kind: str) -> tuple[float, float]:
        """(median, 99th percentile) of the gaps, in ms."""
        visits = None
        if kind != "alone":
            visits = asyncio.create_task(visit(client, args, kind, forms, waits[kind]))
        gaps = gaps_of(await streams(client, args, **FREE, **GREEDY))
        if visits is not None:
            assert not visits.done(), visits
            visits.cancel()
            await asyncio.gather(visits, return_exceptions=True)
        return float(np.percentile(gaps, 50)), float(np.percentile(gaps, 99))

    results = await take_turns(
        args.rounds, {"alone": lambda: run("alone"), "known": lambda: run("known"), "new": lambda: run("new")}
    )
    figures: dict[str, Any] = {"experiment": "compile", "schema_bytes": len(make_schema(1))}
    p99 = {kind: [high for _, high in values] for kind, values in results.items()}
    for above, below in (("new", "known"), ("new", "alone"), ("known", "alone")):
        key = f"p99_{above}_over_{below}"
        figures[key], figures[f"{key}_of_rounds"] = ratio_of(p99[above], p99[below])
    for kind, values in results.items():
        figures[f"{kind}_p50_ms"] = round(statistics.median(middle for middle, _ in values), 3)
        figures[f"{kind}_p99_ms"] = round(statistics.median(p99[kind]), 3)
    for kind in ("known", "new"):
        figures[f"{kind}_requests"] = len(waits[kind])
        figures[f"{kind}_wait_p50_ms"] = (
            round(statistics.median(waits[kind]) * 1e3, 2) if waits[kind] else None
        )
    return figures


async def run_throughput(client: Client, args: argparse.Namespace, draw: str) -> dict[str, Any]:
    """Output tokens per second with and without a schema."""

    async def run(options: dict[str, Any]) -> float:
        started = time.perf_counter()
        await streams(client, args, **options, **DRAWS[draw])
        return float(args.streams * args.tokens / (time.perf_counter() - started))

    schema = FREE if args.null else {"structured_output": {"json_schema": LONG}}
    results = await take_turns(args.rounds, {"free": lambda: run(FREE), "schema": lambda: run(schema)})
    ratio, ratios = ratio_of(results["schema"], results["free"])
    figures: dict[str, Any] = {"experiment": f"throughput, {draw}", "ratio": ratio, "ratios": ratios}
    for kind, rates in results.items():
        figures[f"{kind}_tokens_per_s"] = round(statistics.median(rates), 1)
    return figures


async def run_all(ring: RunningRing, args: argparse.Namespace) -> None:
    """Prints as it goes."""
    async with Client(ring.grpc) as client:
        if args.only != "throughput":
            print(json.dumps(await run_compile(client, args) | vars(args)), flush=True)
        if args.only != "compile":
            for draw in DRAWS:
                print(json.dumps(await run_throughput(client, args, draw) | vars(args)), flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--only", choices=("compile", "throughput"), help="both, unless said")
    add("--streams", type=int, default=32, help="requests at the same time (%(default)s)")
    add("--tokens", type=int, default=256, help="output tokens per request and run (%(default)s)")
    add("--every-ms", type=float, default=250.0, help="between requests that come meanwhile (%(default)s)")
    add("--rounds", type=int, default=7, help="runs of each kind (%(default)s)")
    add("--null", action="store_true", help="no new schemas, and none in the throughput")
    add("--ring", default="", metavar="OPTIONS", help="more options of `signalbox up`, separated by spaces")
    args = parser.parse_args()
    with ExitStack() as stack:
        asyncio.run(run_all(start(stack, *args.ring.split()), args))


if __name__ == "__main__":
    main()
