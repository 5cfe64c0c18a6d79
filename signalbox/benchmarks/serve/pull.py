"""Time to first token of a conversation's next turn at a worker that has none of it: read from the worker that has it,
and computed anew.

    python -m signalbox.benchmarks.serve.pull --model DIR --tokens 4000 --rounds 3

Each round starts a ring of two workers that hand over. The first computes a conversation of so many tokens, and drains
then: the next turn goes to the second. In the other ring of the round the scheduler has `--no-pull-prefixes`. Both
workers have computed something before, and the second has read something from the first, so that the scheduler knows
what either takes. Tokens of both are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from functools import partial
from statistics import median

from signalbox.benchmarks.serve.command import MODEL_NAME, read_vocab_size
from signalbox.benchmarks.serve.local_ring import LocalRing
from signalbox.benchmarks.serve.restart import NEXT_TOKENS, Answer, ask, tell
from signalbox.cli.admin_client import AdminClient, admin_client
from signalbox.cli.commands.arguments import number_type
from signalbox.cli.models.name import model_directory
from signalbox.cli.ring.ring import Ring
from signalbox.cli.ring.supervisor import free_addresses
from signalbox.client import Client

WARM_TOKENS = 512
FIRST, SECOND = "worker-0", "worker-1"


def main() -> int:
    """Prints one line per round, and their medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=model_directory, required=True)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--dtype", type=number_type, default="auto")
    parser.add_argument("--json", action="store_true")
    return asyncio.run(_measure(parser.parse_args()))


async def _measure(args: argparse.Namespace) -> int:
    times: dict[bool, list[float]] = {True: [], False: []}
    for number in range(args.rounds):
        answers = {pulls: await _with_ring(args, number, pulls=pulls) for pulls in (True, False)}
        for pulls, answer in answers.items():
            times[pulls].append(answer.ttft_s)
        pulled, computed = answers[True], answers[False]
        line = {
            "round": number,
            "tokens": args.tokens,
            "cached_tokens": pulled.num_cached,
            "pulled_ttft_ms": round(pulled.ttft_s * 1e3, 1),
            "computed_ttft_ms": round(computed.ttft_s * 1e3, 1),
            "same_tokens": pulled.tokens == computed.tokens,
        }
        tell(line, as_json=args.json)
    ratio = median(c / p for p, c in zip(times[True], times[False], strict=True))
    pulled_ms, computed_ms = (median(times[pulls]) * 1e3 for pulls in (True, False))
    print(f"medians: {pulled_ms:.0f} ms pulled, {computed_ms:.0f} ms computed, ratio {ratio:.1f}")
    return 0


async def _with_ring(args: argparse.Namespace, number: int, *, pulls: bool) -> Answer:
    scheduler, http, grpc, *workers = free_addresses(5)
    flags = (
        "--hand-off",
        f"--threads={args.threads}",
        f"--dtype={args.dtype}",
        "--num-blocks=1024",
        "--max-model-len=8192",
    )
    ring = Ring(
        args.model.absolute(),
        MODEL_NAME,
        scheduler,
        http,
        grpc,
        tuple(workers),
        scheduler_flags=() if pulls else ("--no-pull-prefixes",),
        worker_flags=flags,
    )

    async def run() -> Answer:
        async with Client(grpc) as client, admin_client(scheduler) as admin:
            return await _turns(args, number, client, admin)

    return await LocalRing(ring).use(run)


async def _turns(args: argparse.Namespace, number: int, client: Client, admin: AdminClient) -> Answer:
    at = partial(_ask_at, client, admin)
    for round_ in range(2):  # the first pull is a trial, and opens what there is to be opened
        warm = _prompt(args, f"warm {number} {round_}", WARM_TOKENS)
        await at(SECOND, _prompt(args, f"other {number} {round_}", WARM_TOKENS))
        await at(FIRST, warm)
        await at(SECOND, warm)
    prompt = _prompt(args, f"{number}", args.tokens)
    answer = await at(FIRST, prompt)
    return await at(SECOND, [*prompt, *answer.tokens, *range(100, 100 + NEXT_TOKENS)])


async def _ask_at(client: Client, admin: AdminClient, worker: str, prompt: list[int]) -> Answer:
    """The answer of one worker: the other one drains."""
    await admin.drain(worker, resume=True)
    await admin.drain(SECOND if worker == FIRST else FIRST)
    return await ask(client, prompt)


def _prompt(args: argparse.Namespace, name: str, count: int) -> list[int]:
    dice, vocab_size = random.Random(f"pull {name}"), read_vocab_size(args.model)
    return [dice.randrange(10, vocab_size) for _ in range(count)]


if __name__ == "__main__":
    raise SystemExit(main())
