"""What drafts are worth: rings without, with n-gram drafts and with a draft model take turns with the same load.

    python -m tests.bench.speculation --rounds 7

Prints one JSON object per case and method, on the demo model. `speedup` is the throughput over that without drafts, the
median over rounds of adjacent runs, `accepted_length` the tokens that came of one run of a row, `acceptance` the share
of drafts that were right. All rings are up all the time, but only one has work. With --null no ring drafts: what the
ratios are then is the noise of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from signalbox.cli.admin_client import admin_client
from signalbox.client import Client
from tests.bench.rings import start
from tests.e2e.conftest import RunningRing

PYTHON = (
    "def quicksort(",
    "import os\n\ndef read_json(path):\n",
    "class Stack:\n    def __init__(self",
    "def main():\n    parser = argparse.ArgumentParser(",
    "class Node(object):\n    def __repr__(self):\n",
    "try:\n    import threading\nexcept ImportError:\n",
    "def parse_date(text):\n    ",
    "@contextmanager\ndef open_file(name, mode):\n    ",
)
REPETITIVE = ("NAMES = {\n" + "    'name': ('value', 'type', 'default'),\n" * 24,)
GREEDY: dict[str, Any] = {"temperature": 0}
WITHOUT_LOOPS: dict[str, Any] = {"temperature": 0, "repetition_penalty": 1.2}
"""Greedy outputs of a small model end in loops, which n-gram drafts find easy."""
SAMPLED: dict[str, Any] = {"temperature": 1.2}
"""Hard to guess: here drafts are to cost nothing."""


@dataclass(frozen=True)
class Case:
    """One load."""

    name: str
    prompts: tuple[str, ...]
    num_streams: int
    options: dict[str, Any]


CASES = (
    Case("python, 1 stream", PYTHON, 1, GREEDY),
    Case("python, 8 streams", PYTHON, 8, GREEDY),
    Case("python without loops, 1 stream", PYTHON, 1, WITHOUT_LOOPS),
    Case("python without loops, 8 streams", PYTHON, 8, WITHOUT_LOOPS),
    Case("repetitive, 1 stream", REPETITIVE, 1, GREEDY),
    Case("sampled, 1 stream", PYTHON, 1, SAMPLED),
    Case("sampled, 8 streams", PYTHON, 8, SAMPLED),
)


@dataclass
class Measured:
    """What one method came to in one case."""

    tokens_per_s: list[float] = field(default_factory=list)
    num_tokens: int = 0
    num_drafted: int = 0
    num_accepted: int = 0


async def measure(ring: RunningRing, case: Case, args: argparse.Namespace, measured: Measured) -> None:
    """One run: `requests` requests per stream, one at a time."""

    async def stream(client: Client, number: int) -> None:
        for index in range(args.requests):
            prompt = case.prompts[(number + index) % len(case.prompts)]
            settings = {"max_tokens": args.tokens, "ignore_eos": True, "seed": 100 * number + index}
            await client.generate(prompt, **settings, **case.options).result()

    before = await drafts_of(ring)
    async with Client(ring.grpc) as client:
        started = time.perf_counter()
        await asyncio.gather(*(stream(client, number) for number in range(case.num_streams)))
        seconds = time.perf_counter() - started
    after = await drafts_of(ring)
    count = case.num_streams * args.requests * args.tokens
    measured.tokens_per_s.append(count / seconds)
    measured.num_tokens += count
    measured.num_drafted += after[0] - before[0]
    measured.num_accepted += after[1] - before[1]


async def drafts_of(ring: RunningRing) -> tuple[int, int]:
    """(looked at, right) so far."""
    async with admin_client(ring.scheduler) as link:
        (worker,) = (await link.status()).workers
    return worker.num_draft_tokens, worker.num_accepted_tokens


async def compare(rings: dict[str, RunningRing], case: Case, args: argparse.Namespace) -> dict[str, Measured]:
    """Who goes first changes from round to round; the first round is not counted."""
    names = list(rings)
    for name in names:
        await measure(rings[name], case, args, Measured())
    results = {name: Measured() for name in names}
    for round_ in range(args.rounds):
        for offset in range(len(names)):
            name = names[(round_ + offset) % len(names)]
            await measure(rings[name], case, args, results[name])
    return results


def summary(case: Case, name: str, results: dict[str, Measured]) -> dict[str, Any]:
    """One line of the output."""
    plain, measured = results["none"], results[name]
    ratios = sorted(a / b for a, b in zip(measured.tokens_per_s, plain.tokens_per_s, strict=True))
    drafted, accepted = measured.num_drafted, measured.num_accepted
    return {
        "case": case.name,
        "method": name,
        "speedup": round(statistics.median(ratios), 3),
        "speedups": [round(ratio, 3) for ratio in ratios],
        "tokens_per_s": round(statistics.median(measured.tokens_per_s), 1),
        "accepted_length": round(measured.num_tokens / (measured.num_tokens - accepted), 2),
        "drafted_per_token": round(drafted / measured.num_tokens, 3),
        "acceptance": round(accepted / drafted, 3) if drafted else None,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--ngram", default="ngram", metavar="METHOD[:K]", help="drafts of the second ring (%(default)s)")
    add("--draft", default="draft", metavar="METHOD[:K]", help="drafts of the third ring (%(default)s)")
    add("--requests", type=int, default=4, help="requests per stream and run (%(default)s)")
    add("--tokens", type=int, default=192, help="output tokens per request (%(default)s)")
    add("--rounds", type=int, default=5, help="runs of each kind (%(default)s)")
    add("--only", default="", metavar="TEXT", help="cases with this in their name")
    add("--null", action="store_true", help="draft nowhere")
    args = parser.parse_args()
    with ExitStack() as stack:
        rings = {"none": start(stack)}
        for name, method in (("ngram", args.ngram), ("draft", args.draft)):
            rings[name] = start(stack, *(() if args.null else ("--speculative", method)))
        for case in (case for case in CASES if args.only in case.name):
            results = asyncio.run(compare(rings, case, args))
            for name in rings:
                print(json.dumps(summary(case, name, results)), flush=True)


if __name__ == "__main__":
    main()
