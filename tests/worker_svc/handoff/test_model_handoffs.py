"""Requests of real models go from worker to worker: float32, on the CPU, through other blocks and other slots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu.right.drafts import KnownDrafter
from signalbox.v1 import generation_pb2
from tests.pairs import every_other
from tests.worker_svc.handoff.ends import Asked, End, hand_over
from tests.worker_svc.runner.reference import make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import GARBAGE
from worker_svc.core.batch import ModelRunner
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.core.drafts.ngram import NgramDrafter
from worker_svc.runner.torch_runner import TorchRunner

ModelDir = Callable[[str], Path]
COUNT = 24
"""Output tokens."""
FAMILIES = [
    "tiny-qwen3",
    "tiny-gemma3",
    "tiny-llama4",
    "tiny-gemma4-shared",
    "tiny-deepseek-v3",
    "tiny-gpt-oss",
    "hybrid-qwen3-5",
    "hybrid-kimi-linear",
    "hybrid-falcon-h1",
]
WINDOWED = ("tiny-gemma3", "tiny-llama4", "tiny-gemma4-shared", "tiny-gpt-oss")
NUM_DRAFTS = 3


def runner_of(path: Path) -> TorchRunner:
    """A runner whose cache is garbage where nothing has been written."""
    windows = {"num_blocks": 160, "mean_request_tokens": 128, "max_num_batched_tokens": 64}
    runner = make_runner(path, max_draft_tokens=NUM_DRAFTS, **windows)
    assert bool(runner.info.groups) == path.name.startswith(WINDOWED), "windows have groups of their own"
    runner.info = replace(runner.info, max_draft_tokens=NUM_DRAFTS)
    runner._cache.fill(GARBAGE)
    if runner._states is not None:
        runner._states.fill(GARBAGE)
    return runner


def asked(prompt: list[int], max_drafts: int) -> Asked:
    sampling = generation_pb2.SamplingParams(
        temperature=0.7,
        seed=11,
        max_tokens=COUNT,
        repetition_penalty=1.2,
        frequency_penalty=0.3,
        min_tokens=5,
        ignore_eos=True,
        logprobs=2,
        prompt_logprobs=1,
    )
    return Asked(prompt, generation_pb2.RequestPayload(sampling=sampling), COUNT, b"c" * 16, max_drafts)


def told(end: End, logprobs: dict[int, float], prompt: dict[int, float]) -> None:
    """Adds log-probabilities that the frontend is told of, by output token and by position of the prompt."""
    for batch in end.batches():
        starts = np.frombuffer(batch.starts, "<u4").tolist()
        for start, each in zip(starts, batch.logprobs, strict=False):
            logprobs.update(enumerate((token.logprob for token in each.tokens), start))
        for chunk in batch.prompt_logprobs:
            prompt.update(enumerate((token.logprob for token in chunk.tokens), chunk.start))


async def stays(
    runner: ModelRunner, request: Asked, blocks: list[int]
) -> tuple[list[int], list[float], list[float]]:
    """What comes of a request that stays where it is."""
    seen, logprobs, prompt = dict[int, int](), dict[int, float](), dict[int, float]()
    async with End("a", runner, NgramDrafter(1, 3)) as a:
        a.add(request.message(0))
        a.start(0, blocks, len(request.prompt))
        while not a.tell(seen):
            a.step()
        told(a, logprobs, prompt)
    return [seen[n] for n in range(COUNT)], [logprobs[n] for n in range(COUNT)], list(prompt.values())


async def moves(
    runners: Sequence[ModelRunner], request: Asked, tables: list[list[int]], drafter: Drafter
) -> tuple[list[int], list[float], list[float]]:
    """What comes of it when it moves with almost every token, now and then in the middle of its prompt."""
    seen, logprobs, prompt = dict[int, int](), dict[int, float](), dict[int, float]()
    async with End("a", runners[0], drafter) as a, End("b", runners[1], drafter) as b:
        a.add(request.message(2))
        a.start(2, tables[0], 9)
        ends, slots, leg, has_ended = [a, b], [2, 1], 0, False
        while not has_ended:
            leg += 1
            (here, there), (slot, other) = ends, slots
            for _ in range(here.runner.info.num_lanes - 1):
                here.step()  # so that the next is the turn of its lane
            moved = await hand_over(request, (here, slot), (there, other), leg, leg, tables[leg % 2])
            assert moved or here.tell(seen)
            last = there if moved else here
            has_ended = last.tell(seen)
            told(last, logprobs, prompt)
            if leg % 3:
                here.read()
                there.read(1)
            ends, slots = [there, here], [other, slot]
        assert leg > 3
    return [seen[n] for n in range(COUNT)], [logprobs[n] for n in range(COUNT)], list(prompt.values())


@pytest.mark.parametrize(("preset", "drafts"), every_other(FAMILIES, (0, NUM_DRAFTS)))
def test_tokens_and_log_probabilities_are_those_of_one_that_stayed(
    model_dir: ModelDir, preset: str, drafts: int
) -> None:
    """HO5, HO12, D6, SG10: blocks of all groups, latents, shared layers, recurrent states with a tail of drafts,
    penalties, random numbers, and how far the prompt was read."""
    path = model_dir(preset)
    assert_moves_as_it_stays(runner_of(path), (runner_of(path), runner_of(path)), drafts)


def assert_moves_as_it_stays(alone: ModelRunner, pair: Sequence[ModelRunner], drafts: int) -> None:
    """A request with penalties gives between a pair of runners what it gives on one `alone`."""
    prompt = [*make_prompts((40,))[0], *[7, 8, 9] * 3]
    request = asked(prompt, drafts)
    count = -(-(len(prompt) + COUNT) // 4)
    tables = [list(range(count)), list(range(count + 1, 1, -1))]
    stayed = asyncio.run(stays(alone, request, tables[0]))
    numbers = [drafts_behind_states(runner) for runner in pair]
    drafter = KnownDrafter([[*prompt, *stayed[0]]], 512, 6)  # six of ten are right
    moved = asyncio.run(moves(pair, request, tables, drafter))
    has_tails = bool(drafts and alone.info.num_state_versions)
    assert any(map(any, numbers)) == has_tails, "no state travels with drafts behind it"
    assert moved[0] == stayed[0]
    assert np.allclose(moved[1], stayed[1], atol=1e-4)
    assert len(moved[2]) == len(prompt) - 1 and np.allclose(moved[2], stayed[2], atol=1e-4)


def drafts_behind_states(runner: ModelRunner) -> list[int]:
    """How many each state has behind it that comes to a runner, from now on."""
    write, numbers = runner.write_state, list[int]()  # type: ignore[attr-defined]

    def write_state(slot: int, version: int, num_drafts: int, content: bytes) -> None:
        numbers.append(num_drafts)
        write(slot, version, num_drafts, content)

    runner.write_state = write_state  # type: ignore[attr-defined]
    return numbers


def test_a_layout_tells_what_can_be_exchanged(model_dir: ModelDir) -> None:
    """HO1: blocks, groups and states of another size are others; how many there are does not matter."""
    plain, windows, states = (
        runner_of(model_dir(name)).info.kv_layout for name in (FAMILIES[0], "tiny-gemma3", "hybrid-qwen3-5")
    )
    larger_blocks = make_runner(model_dir(FAMILIES[0]), block_size=8).info.kv_layout
    drafts = make_runner(model_dir("hybrid-qwen3-5"), max_draft_tokens=NUM_DRAFTS + 1).info.kv_layout
    assert len({"", plain, windows, states, larger_blocks, drafts}) == 6
    assert make_runner(model_dir(FAMILIES[0]), num_blocks=32).info.kv_layout == plain
