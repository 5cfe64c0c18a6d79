"""What a tenant's stream feels of hostile forms beside it: its gaps beside 8 plain requests, and beside 8 hostile ones.

    signalbox up --frontend-set key-file=KEYS &
    python -m signalbox.benchmarks.forms.beside --key KEY --hostile-key KEY

The 50 forms take turns, eight at a time. One line for each phase: p50, p95 and longest of the gaps in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx

from signalbox.benchmarks.forms.hostile import hostile_forms
from signalbox.grammar.form import FormKind

NUM_BESIDE = 8
WARM_S = 3.0
PATH = "/v1/completions"


async def measure(http: httpx.AsyncClient, args: argparse.Namespace, *, is_hostile: bool) -> str:
    """One phase."""
    forms, answers, gaps = itertools.cycle(bodies()), Counter[int](), list[float]()
    beside = [load(http, args, forms if is_hostile else None, answers) for _ in range(NUM_BESIDE)]
    tasks = [asyncio.create_task(each) for each in (*beside, listen(http, args, gaps))]
    await asyncio.sleep(WARM_S)
    gaps.clear()
    await asyncio.sleep(args.seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    found = sorted(gap * 1e3 for gap in gaps)
    p50, p95 = (found[int(len(found) * share)] for share in (0.5, 0.95))
    name = "hostile forms" if is_hostile else "plain requests"
    return f"beside {name}: p50 {p50:.0f}, p95 {p95:.0f}, max {found[-1]:.0f} ms; {dict(answers)}"


def bodies() -> Iterator[dict[str, Any]]:
    """`structured_outputs` of each hostile form."""
    for form in hostile_forms().values():
        if form.kind is FormKind.JSON_SCHEMA:
            yield {"json": json.loads(form.text)}
        else:
            yield {form.kind.value: form.text}


async def load(
    http: httpx.AsyncClient,
    args: argparse.Namespace,
    forms: Iterator[dict[str, Any]] | None,
    answers: Counter[int],
) -> None:
    """Asks without end. forms: None: plain requests."""
    for number in itertools.count():
        wanted: dict[str, Any] = (
            {"ignore_eos": True} if forms is None else {"structured_outputs": next(forms)}
        )
        body = {"prompt": f"a {number}", "max_tokens": args.tokens, "temperature": 1, **wanted}
        answer = await http.post(PATH, json=body | {"model": args.model}, headers=bearer(args.hostile_key))
        answers[answer.status_code] += 1


async def listen(http: httpx.AsyncClient, args: argparse.Namespace, gaps: list[float]) -> None:
    """Streams without end; the time to each first token counts as a gap."""
    body = {"prompt": "hello", "max_tokens": args.tokens, "stream": True, "ignore_eos": True}
    while True:
        last = time.monotonic()
        call = http.stream("POST", PATH, json=body | {"model": args.model}, headers=bearer(args.key))
        async with call as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    now = time.monotonic()
                    gaps.append(now - last)
                    last = now


def bearer(key: str) -> dict[str, str]:
    """The header of a key."""
    return {"authorization": f"Bearer {key}"} if key else {}


async def run(args: argparse.Namespace) -> None:
    """Both phases, twice."""
    async with httpx.AsyncClient(base_url=args.url, timeout=120, trust_env=False) as http:
        for is_hostile in (False, True, False, True):
            print(await measure(http, args, is_hostile=is_hostile), flush=True)


def main() -> None:
    """Prints the phases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--key", default="", help="of the tenant who streams")
    parser.add_argument("--hostile-key", default="", help="of the tenant beside it")
    parser.add_argument("--tokens", type=int, default=200, help="most tokens of an output")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a phase")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
