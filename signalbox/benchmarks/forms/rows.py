"""What forms cost the streams that follow them: gaps of rows with a JSON schema of ten fields.

    signalbox up &
    python -m signalbox.benchmarks.forms.rows [--rows 32] [--pid PID_OF_A_WORKER]

One line for each of the rounds: p50 and p95 of the gaps in milliseconds, tokens per second, and CPU seconds of the
processes named.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import time
from pathlib import Path
from typing import Any

import httpx

from signalbox.benchmarks.forms.beside import PATH, WARM_S, bearer

FIELDS = {
    "name": {"type": "string"},
    "street": {"type": "string"},
    "city": {"type": "string"},
    "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
    "age": {"type": "integer"},
    "score": {"type": "number"},
    "is_new": {"type": "boolean"},
    "kind": {"enum": ["person", "company", "club"]},
    "tags": {"type": "array", "items": {"type": "string"}},
    "note": {"type": ["string", "null"]},
}
SCHEMA = {
    "type": "object",
    "properties": FIELDS,
    "required": list(FIELDS),
    "additionalProperties": False,
}


async def stream(http: httpx.AsyncClient, args: argparse.Namespace, row: int, gaps: list[float]) -> None:
    """Streams outputs without end, and notes the gaps inside of them."""
    for number in itertools.count():
        body: dict[str, Any] = {
            "model": args.model,
            "prompt": f"row {row} of {number}:",
            "max_tokens": args.tokens,
            "stream": True,
            "temperature": 1,
            "seed": 1000 * row + number,
            "structured_outputs": {"json": SCHEMA},
        }
        last = None
        async with http.stream("POST", PATH, json=body, headers=bearer(args.key)) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    now = time.monotonic()
                    if last is not None:
                        gaps.append(now - last)
                    last = now


async def measure(http: httpx.AsyncClient, args: argparse.Namespace) -> str:
    """One round."""
    gaps = list[float]()
    tasks = [asyncio.create_task(stream(http, args, row, gaps)) for row in range(args.rows)]
    await asyncio.sleep(WARM_S)
    gaps.clear()
    before = cpu_seconds(args.pid)
    await asyncio.sleep(args.seconds)
    spent = cpu_seconds(args.pid) - before
    failed = [task.exception() for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if failed:
        raise SystemExit(f"a stream failed: {failed[0]!r}")
    found = sorted(gap * 1e3 for gap in gaps)
    p50, p95 = (found[int(len(found) * share)] for share in (0.5, 0.95))
    return (
        f"{args.rows} rows: p50 {p50:.2f}, p95 {p95:.2f} ms, {len(found) / args.seconds:.0f} gaps/s,"
        f" {spent:.2f} CPU s in {args.seconds:.0f} s"
    )


def cpu_seconds(pids: list[int]) -> float:
    """CPU time of processes so far, their threads included."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def run(args: argparse.Namespace) -> None:
    """All rounds."""
    limits = httpx.Limits(max_connections=args.rows)
    async with httpx.AsyncClient(base_url=args.url, timeout=120, limits=limits) as http:
        for _ in range(args.rounds):
            print(await measure(http, args), flush=True)


def main() -> None:
    """Prints the rounds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--key", default="")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=200, help="most tokens of an output")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a round")
    parser.add_argument("--pid", type=int, action="append", default=[], help="whose CPU time is told")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
