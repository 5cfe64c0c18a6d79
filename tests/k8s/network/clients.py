"""Clients of frontends, run where they stand in the network; what they saw is JSON on stdout.

python -m tests.k8s.network.clients ready 2 ADDRESS...     # until each frontend has two workers
python -m tests.k8s.network.clients once ADDRESS           # one stream
python -m tests.k8s.network.clients load ADDRESS...        # streams one behind the other, until SIGTERM
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from dataclasses import asdict, dataclass, field

import grpc

from signalbox.client import Client
from signalbox.errors import SignalboxError
from signalbox.runtime.process import die_with_parent
from worker_svc.runner.sim.model import continuation

VOCAB_SIZE = 4096
NUM_AT_ONCE = 6
NUM_TOKENS = 150
READY_S = 60.0
STREAM_S = 60.0
POLL_S = 0.1


@dataclass
class Seen:
    """What became of the streams."""

    num_whole: int = 0
    num_turned_away: int = 0
    """Requests that a frontend did not take; another one did."""
    broken: list[str] = field(default_factory=list)


async def ready(num_workers: int, addresses: list[str]) -> Seen:
    """Each frontend answers, and says so many workers."""
    async with asyncio.timeout(READY_S):
        for address in addresses:
            while await _num_workers(address) != num_workers:
                await asyncio.sleep(POLL_S)
    return Seen()


async def _num_workers(address: str) -> int:
    try:
        async with Client(address) as client:
            return sum(model.num_workers for model in await client.list_models(timeout_s=2))
    except (SignalboxError, grpc.aio.AioRpcError):
        return 0


async def stream(address: str, seen: Seen) -> None:
    """One request. It is whole when it has all tokens of an undisturbed run, and one end."""
    prompt = [random.randrange(VOCAB_SIZE) for _ in range(9)]
    tokens: list[int] = []
    num_ends = 0
    try:
        async with Client(address) as client, asyncio.timeout(STREAM_S):
            async for delta in client.generate(prompt, max_tokens=NUM_TOKENS, temperature=0, ignore_eos=True):
                tokens += delta.token_ids
                num_ends += delta.finished is not None
    except (SignalboxError, grpc.aio.AioRpcError, TimeoutError) as error:
        if not tokens and not isinstance(error, TimeoutError):
            seen.num_turned_away += 1
            await asyncio.sleep(POLL_S)
        else:
            seen.broken.append(f"{address} after {len(tokens)} tokens: {error!r}")
        return
    if tokens == continuation(prompt, NUM_TOKENS, VOCAB_SIZE) and num_ends == 1:
        seen.num_whole += 1
    else:
        seen.broken.append(f"{address}: {len(tokens)} tokens and {num_ends} ends, or other tokens")


async def load(addresses: list[str]) -> Seen:
    """What all streams have come to, when the last of them has ended."""
    seen, stop = Seen(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def client(number: int) -> None:
        while not stop.is_set():
            await stream(addresses[number % len(addresses)], seen)
            number += 1

    await asyncio.gather(*(client(number) for number in range(NUM_AT_ONCE)))
    return seen


async def main(command: str, *arguments: str) -> Seen:
    """Runs one of the commands above."""
    seen = Seen()
    if command == "ready":
        return await ready(int(arguments[0]), list(arguments[1:]))
    if command == "once":
        await stream(arguments[0], seen)
        return seen
    return await load(list(arguments))


if __name__ == "__main__":
    die_with_parent()
    print(json.dumps(asdict(asyncio.run(main(*sys.argv[1:])))))
