"""Layers with windows or chunks have blocks of their own on a GPU, too: its runner on the CPU, steps ahead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from signalbox.v1 import generation_pb2
from tests.worker_svc.runner.reference import assert_same_but_for_ties, generate, make_prompts
from tests.worker_svc.runner.runner_harness import GARBAGE
from tests.worker_svc.threaded_ring import ThreadedRing
from worker_svc.runner.cuda.runner import CudaRunner

ModelDir = Callable[[str], Path]
NUM_TOKENS = 40
STOPS = (None, 7, None, 23)
"""Number of the token that ends an output, which is known when the next step has been launched."""


def grouped(path: Path) -> CudaRunner:
    """A runner whose groups have little more than they need, full of garbage."""
    runner = CudaRunner(
        path,
        served_model_name="tiny",
        dtype="float32",
        num_blocks=100,
        block_size=4,
        threads=1,
        num_slots=16,
        mean_request_tokens=128,
        max_num_batched_tokens=8,
    )
    assert runner.info.groups and runner.info.groups[0].num_blocks < runner.info.num_blocks
    runner._cache.fill(GARBAGE)
    return runner


@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("name", ["gemma3", "gpt-oss", "llama4", "mistral"])
def test_steps_ahead_through_groups(model_dir: ModelDir, name: str, depth: int) -> None:
    """O4, WB1, WB2: blocks of a window go to others while steps are in flight; some requests end in mid-flight. Rows
    write into no block that nobody was told of."""
    path, prompts = model_dir(f"tiny-{name}"), make_prompts((5, 31, 40, 61))
    wholes = [generate(path, tuple(prompt), NUM_TOKENS) for prompt in prompts]
    runner = grouped(path)
    launched: list[int] = []
    launch = runner.launch
    runner.launch = lambda batch, ahead=None: launched.append(int(np.sum(ahead))) or launch(batch, ahead)  # type: ignore[method-assign,func-returns-value]
    ring, clients = ThreadedRing(runner, depth=depth), []
    try:
        for prompt, (output, _), stop in zip(prompts, wholes, STOPS, strict=True):
            sampling = generation_pb2.SamplingParams(temperature=0.0)
            if stop is not None:
                sampling.stop_token_ids.append(output[stop])
            clients.append(ring.submit(prompt, NUM_TOKENS, sampling))
        while not all(client.ends for client in clients):
            ring.step()
    finally:
        ring.close()
    for client, (output, logits), stop in zip(clients, wholes, STOPS, strict=True):
        count = NUM_TOKENS if stop is None else output.index(output[stop]) + 1
        assert_same_but_for_ties(client.output, output[:count], logits)
    assert sum(launched) > NUM_TOKENS
    for number, layer in zip(runner._layout.of_layers, runner._cache.layers, strict=True):
        told = runner.info.groups[number - 1].num_blocks if number else runner.info.num_blocks
        assert len(layer.keys) == told + 1
        assert (layer.keys[told] == GARBAGE).all()
