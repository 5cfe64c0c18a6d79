"""Streams of a simulated model that run at once, and what came of them."""

from __future__ import annotations

import asyncio
import random

from signalbox.client import Client, Delta, Generation
from worker_svc.runner.sim.model import continuation

VOCAB_SIZE = 4096
OUTPUT_TOKENS = 150
PROMPT_TOKENS = 9
RUN_S, END_S = 30.0, 60.0


class Streams:
    """Requests that run, and what came of them so far."""

    def __init__(self, client: Client, count: int, *, num_tokens: int = OUTPUT_TOKENS, seed: int = 0) -> None:
        """client: closed with the last stream's end. num_tokens: of each output. seed: of the prompts."""
        numbers = random.Random(seed)
        self._prompts = [[numbers.randrange(VOCAB_SIZE) for _ in range(PROMPT_TOKENS)] for _ in range(count)]
        self._num_tokens = num_tokens
        self._client = client
        self.deltas: list[list[Delta]] = [[] for _ in self._prompts]
        self.request_ids = [f"stream-{seed}-{number}" for number in range(count)]
        generations = [
            self._client.generate(
                prompt, request_id=request_id, max_tokens=num_tokens, temperature=0, ignore_eos=True
            )
            for prompt, request_id in zip(self._prompts, self.request_ids, strict=True)
        ]
        self._readers = [
            asyncio.create_task(self._read(generation, deltas))
            for generation, deltas in zip(generations, self.deltas, strict=True)
        ]

    async def _read(self, generation: Generation, deltas: list[Delta]) -> None:
        async for delta in generation:
            deltas.append(delta)

    async def all_run(self) -> None:
        """Until every request has given something more than now; none may have ended."""
        before = [len(deltas) for deltas in self.deltas]
        async with asyncio.timeout(RUN_S):
            while any(len(deltas) <= num for deltas, num in zip(self.deltas, before, strict=True)):
                await asyncio.sleep(0.01)
        assert not any(deltas[-1].finished for deltas in self.deltas)

    async def assert_all_end_once(self) -> None:
        """Every output is what an undisturbed run gives, with one end."""
        async with asyncio.timeout(END_S):
            await asyncio.gather(*self._readers)
        await self._client.close()
        for prompt, deltas in zip(self._prompts, self.deltas, strict=True):
            tokens = [token for delta in deltas for token in delta.token_ids]
            assert tokens == continuation(prompt, self._num_tokens, VOCAB_SIZE)
            assert [delta.finished is not None for delta in deltas].count(True) == 1
