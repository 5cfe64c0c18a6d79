"""Time to first token of a conversation's next turn when everything was restarted, from disk and computed anew.

    python -m signalbox.benchmarks.serve.restart --model DIR --tokens 4000 --rounds 3

Each round starts a ring with a disk tier, which computes a conversation of so many tokens, and is stopped. Then it is
started again, answers something short, and is asked the conversation's next turn, whose time to first token is told;
and so is a ring without a disk tier. Tokens of both are compared. What was written has been read and written a moment
before, so the files are in the page cache, as they are for a while behind a restart of processes; `--drop FILE` is a
file to write 1 to before each second start (/proc/sys/vm/drop_caches), for a restart of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

from signalbox.benchmarks.serve.command import MODEL_NAME, read_vocab_size
from signalbox.benchmarks.serve.local_ring import LocalRing
from signalbox.cli.commands.arguments import number_type
from signalbox.cli.models.name import model_directory
from signalbox.cli.ring.ring import Ring
from signalbox.cli.ring.supervisor import free_addresses
from signalbox.client import Client

T = TypeVar("T")
OUTPUT_TOKENS = 16
NEXT_TOKENS = 24
"""Tokens of the next turn's own."""
QUIET_S = 1.5
"""A directory that has not grown for so long has what was to be stored."""


@dataclass(frozen=True)
class Answer:
    """To one turn."""

    tokens: list[int]
    ttft_s: float
    num_cached: int


def main() -> int:
    """Prints one line per round, and their medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=model_directory, required=True)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", type=number_type, default="auto")
    parser.add_argument("--drop", type=Path)
    parser.add_argument("--json", action="store_true")
    return asyncio.run(_measure(parser.parse_args()))


async def _measure(args: argparse.Namespace) -> int:
    times: dict[str, list[float]] = {"disk": [], "computed": []}
    for number in range(args.rounds):
        prompt = _prompt(args, number)
        with tempfile.TemporaryDirectory() as directory:
            longer = await _with_ring(args, Path(directory), partial(_first_turn, prompt, Path(directory)))
            if args.drop is not None:
                args.drop.write_text("1")
            loaded = await _with_ring(args, Path(directory), partial(_second_turn, longer))
        computed = await _with_ring(args, None, partial(_second_turn, longer))
        times["disk"].append(loaded.ttft_s)
        times["computed"].append(computed.ttft_s)
        line = {
            "round": number,
            "tokens": args.tokens,
            "cached_tokens": loaded.num_cached,
            "disk_ttft_ms": round(loaded.ttft_s * 1e3, 1),
            "computed_ttft_ms": round(computed.ttft_s * 1e3, 1),
            "same_tokens": loaded.tokens == computed.tokens,
        }
        tell(line, as_json=args.json)
    disk, anew = median(times["disk"]), median(times["computed"])
    ratio = median(c / d for d, c in zip(times["disk"], times["computed"], strict=True))
    print(f"medians: {disk * 1e3:.0f} ms from disk, {anew * 1e3:.0f} ms computed, ratio {ratio:.1f}")
    return 0


def _prompt(args: argparse.Namespace, number: int) -> list[int]:
    dice = random.Random(f"restart {number}")
    vocab_size = read_vocab_size(args.model)
    return [dice.randrange(10, vocab_size) for _ in range(args.tokens)]


async def _first_turn(prompt: list[int], directory: Path, client: Client) -> list[int]:
    """The prompt of the second turn of a conversation whose first has been stored."""
    answer = await ask(client, prompt)
    await _until_quiet(directory)
    return [*prompt, *answer.tokens, *range(100, 100 + NEXT_TOKENS)]


async def _second_turn(prompt: list[int], client: Client) -> Answer:
    await ask(client, list(range(300, 400)))  # nothing is paid for the first time
    return await ask(client, prompt)


async def _with_ring(
    args: argparse.Namespace, directory: Path | None, work: Callable[[Client], Awaitable[T]]
) -> T:
    scheduler, http, grpc, worker = free_addresses(4)
    flags = [
        f"--threads={args.threads}",
        f"--dtype={args.dtype}",
        "--num-blocks=1024",
        "--max-model-len=8192",
    ]
    if directory is not None:
        flags += [f"--kv-disk={directory}", "--kv-disk-bytes=4GiB"]
    ring = Ring(
        args.model.absolute(), MODEL_NAME, scheduler, http, grpc, (worker,), worker_flags=tuple(flags)
    )

    async def run() -> T:
        async with Client(grpc) as client:
            return await work(client)

    return await LocalRing(ring).use(run)


async def ask(client: Client, prompt: list[int]) -> Answer:
    """The answer to a prompt, greedy, and how soon its first token came."""
    began, ttft_s = time.perf_counter(), 0.0
    call = client.generate(prompt, max_tokens=OUTPUT_TOKENS, temperature=0, ignore_eos=True)
    async for _ in call:
        ttft_s = ttft_s or time.perf_counter() - began
    result = await call.result()
    return Answer(list(result.token_ids), ttft_s, result.finished.num_cached_tokens)


def tell(line: Mapping[str, object], *, as_json: bool) -> None:
    """Prints one round."""
    print(json.dumps(line) if as_json else "  ".join(f"{k} {v}" for k, v in line.items()), flush=True)


async def _until_quiet(directory: Path) -> None:
    """What was to be stored is on disk."""
    size, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET_S:
        await asyncio.sleep(0.1)
        now = sum(path.stat().st_size for path in directory.glob("*/*.kv"))
        if now != size or not now:
            size, since = now, time.monotonic()


if __name__ == "__main__":
    raise SystemExit(main())
