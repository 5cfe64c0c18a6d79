"""Requests of the simulated model go from worker to worker, and nothing shows in what comes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from signalbox.protocol.block_groups import BlockGroup
from signalbox.protocol.enums import BlockGroupKind
from signalbox.protocol.hash_chain import chain_hashes, root_hash
from signalbox.v1 import generation_pb2
from tests.worker_svc.handoff.ends import Asked, End, hand_over
from worker_svc.core.batch import RunnerInfo
from worker_svc.runner.sim.model import SimDrafter, SimRunner, continuation

INFO = RunnerInfo("sim", num_blocks=64, block_size=4, max_model_len=128, vocab_size=100, eos_token_ids=())
WINDOW = BlockGroup(BlockGroupKind.WINDOW, 10, 64)
PROMPT = list(range(5, 27))
BLOCKS = list(range(32))
COUNT = 80
"""Output tokens."""


def asked(max_tokens: int = 40, drafts: int = 0, **sampling: Any) -> Asked:
    payload = generation_pb2.RequestPayload(sampling=generation_pb2.SamplingParams(**sampling))
    root = root_hash("sim")
    chain = chain_hashes(root, np.array(PROMPT, "<i4").tobytes(), 4)[-16:] or root
    return Asked(PROMPT, payload, max_tokens, chain, drafts)


def run(
    test: Callable[[End, End], Coroutine[Any, Any, None]], info: RunnerInfo, acceptance: float = 0.0
) -> None:
    """Runs a test with two workers."""

    async def both() -> None:
        def drafter() -> SimDrafter | None:
            return SimDrafter(info.vocab_size, acceptance) if info.max_draft_tokens else None

        async with End("a", SimRunner(info), drafter()) as a, End("b", SimRunner(info), drafter()) as b:
            await test(a, b)

    asyncio.run(both())


KINDS = {
    "plain": (INFO, 0.0),
    "windows": (replace(INFO, groups=(WINDOW,)), 0.0),
    "states": (replace(INFO, num_state_versions=3), 0.0),
    "drafts": (replace(INFO, max_draft_tokens=3), 0.7),
    "all": (replace(INFO, groups=(WINDOW,), num_state_versions=4, max_draft_tokens=3), 0.7),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_goes_back_and_forth_and_its_tokens_are_those_of_one_that_stayed(kind: str) -> None:
    """HO5, HO6, HO11, HO12: handed over behind each step, with everything that the frontend has not read."""
    info, acceptance = KINDS[kind]

    async def test(a: End, b: End) -> None:
        request = asked(COUNT, info.max_draft_tokens)
        a.add(request.message(0))
        a.start(0, BLOCKS, 9)
        a.step(chunks=[(0, 9, 6)])  # handed over in the middle of its prompt
        ends, slots, leg, seen = [a, b], [0, 1], 0, dict[int, int]()
        has_ended = False
        while not has_ended:
            leg += 1
            here, there = ends
            if not await hand_over(request, (here, slots[0]), (there, slots[1]), leg, leg, BLOCKS):
                assert here.tell(seen)
                break
            here.read()
            has_ended = there.tell(seen)
            legs = {leg for batch in there.batches() for leg in np.frombuffer(batch.legs, "<u4").tolist()}
            assert legs <= {leg}, "what is repeated is said with the leg of who repeats it"
            if not has_ended and leg % 2:
                there.step()
                has_ended = there.tell(seen)
            there.read(leg % 3)  # the rest travels on
            ends, slots = [there, here], [slots[1], slots[0]]
        assert leg > 4
        assert [seen[number] for number in range(COUNT)] == continuation(PROMPT, COUNT, 100)

    run(test, info, acceptance)
