"""Requests that go on in other blocks and another slot, from the bytes of those that they had."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from signalbox.benchmarks.runner.requests import I32, Requests
from worker_svc.core.batch import HandoffRunner
from worker_svc.core.requests.state_versions import StateVersions

SPINE = 0


def hand_over(
    runner: HandoffRunner, prompts: Sequence[Sequence[int]], num_tokens: int
) -> list[tuple[list[int], list[int]]]:
    """Prompts with their outputs, greedy, half of each before its move. As many prompts are taken, the first ones, as
    have room twice."""
    info = runner.info
    width = -(-(max(map(len, prompts)) + num_tokens) // info.block_size)
    count = min(len(prompts), info.num_slots // 2, info.num_blocks // (2 * width))
    arrays = [np.array(prompt, np.int32) for prompt in prompts[:count]]
    requests = Requests([*arrays, *arrays], num_tokens, info.block_size)
    states = StateVersions(info.num_slots, info.num_state_versions)
    sources, targets = np.arange(count, dtype=np.int32), np.arange(count, 2 * count, dtype=np.int32)
    for slot, prompt in enumerate(arrays):
        _step(runner, requests, states, [(slot, len(prompt))], sources[:slot])
    for _ in range(num_tokens // 2):
        _step(runner, requests, states, [], sources)
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        _move(runner, requests, states, source, target)
    while (requests.num_tokens - requests.num_prompt)[targets].min() < num_tokens:
        _step(runner, requests, states, [], targets)
    outputs = [requests.output(slot)[:num_tokens] for slot in targets.tolist()]
    return [(prompt.tolist(), output) for prompt, output in zip(arrays, outputs, strict=True)]


def _step(
    runner: HandoffRunner, requests: Requests, states: StateVersions, chunks: list[tuple[int, int]], rows: I32
) -> None:
    batch = requests.batch(chunks, rows)
    states.take(batch)
    sampled = runner.execute(batch)
    states.commit(batch, ())
    requests.advance(batch)
    requests.fill_in(batch, sampled.token_ids)


def _move(runner: HandoffRunner, requests: Requests, states: StateVersions, source: int, target: int) -> None:
    memory = runner.block_memory
    assert memory is not None, "runners with a layout have blocks that travel"
    num_blocks = -(-int(requests.num_computed[source]) // runner.info.block_size)
    content = memory.read(SPINE, requests.block_tables[source, :num_blocks].tolist())
    memory.write(SPINE, requests.block_tables[target, :num_blocks].tolist(), content)
    if states.num_versions:
        state = runner.read_state(source, int(states.version[source]), 0)
        version = states.resume(target, int(states.num_tokens[source]))
        runner.write_state(target, version, 0, state)
    for column in (requests.tokens, requests.num_tokens, requests.num_computed):
        column[target] = column[source]
