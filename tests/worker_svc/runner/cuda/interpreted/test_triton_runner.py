"""Whole models on Triton's kernels: fused modules, and decode steps that read the device's state alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pairs import in_soak
from tests.worker_svc.drafting.local_ring import LocalRing
from tests.worker_svc.runner.reference import assert_same_but_for_ties, generate, make_prompts
from tests.worker_svc.runner.runner_harness import GARBAGE, Driver
from worker_svc.runner.cuda.copies.rows import move_by_kernel
from worker_svc.runner.cuda.graphs import DecodeStep
from worker_svc.runner.cuda.runner import CudaRunner
from worker_svc.runner.triton.fused import TritonAttention, TritonMLP, TritonNorm

ModelDir = Callable[[str], Path]
COUNT = 4
GROUPED = 10
"""Output tokens, which pass the end of a block of every row's window."""
FUSED = {
    "tiny-qwen3": {TritonAttention, TritonMLP, TritonNorm},
    "tiny-glm": {TritonAttention, TritonMLP, TritonNorm},
    "tiny-gpt-oss": {TritonNorm},
    "tiny-deepseek-v3": {TritonMLP, TritonNorm},
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "preset", ["tiny-gpt-oss", "tiny-deepseek-v3", *in_soak("tiny-qwen3", "tiny-gemma2", "tiny-glm")]
)
def test_greedy_output_equals_generate(
    model_dir: ModelDir, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Norms of heads; neighbours that are rotated; windows and capped scores; sinks; latents."""
    path = model_dir(preset)
    runner = CudaRunner(
        path,
        served_model_name="tiny",
        num_slots=16,
        attention="triton",
        dtype="float32",
        num_blocks=40,
        block_size=4,
        max_model_len=64,
        threads=1,
        num_host_blocks=8,
    )
    assert runner.records is not None and runner.records.copier._move is move_by_kernel
    used = {type(module) for module in runner.model.module.modules()}
    assert FUSED.get(preset, {TritonAttention, TritonNorm}) <= used
    sizes, run = [], DecodeStep.run
    monkeypatch.setattr(DecodeStep, "run", lambda step: sizes.append(len(step.inputs.slots)) or run(step))
    driver = Driver(runner)
    prompts = make_prompts((3, 9, 18))
    requests = [driver.add(prompt, COUNT) for prompt in prompts]
    driver.step({requests[0].slot: 3, requests[1].slot: 8})
    runner.check()  # takes no block from anybody
    driver.step({requests[1].slot: 1, requests[2].slot: 18})
    while not all(request.is_finished for request in requests):
        driver.step({})
    assert 4 in sizes, "three rows run on the step of four"
    ties = sum(
        assert_same_but_for_ties(request.output, *(part[:COUNT] for part in generate(path, tuple(prompt))))
        for request, prompt in zip(requests, prompts, strict=True)
    )
    assert ties == 0


@pytest.mark.timeout(300)
def test_bad_rows_are_named_by_decode_steps_and_others(model_dir: ModelDir) -> None:
    """N1: beside good rows, also where a step is filled up with rows of nobody."""
    runner = CudaRunner(
        model_dir("tiny-qwen3"),
        served_model_name="tiny",
        num_slots=16,
        attention="triton",
        dtype="float32",
        num_blocks=40,
        block_size=4,
        max_model_len=64,
        threads=1,
    )
    driver = Driver(runner)
    runner._cache.fill(float("nan"))  # what others left behind is read by nobody
    requests = [driver.add(prompt, 4) for prompt in make_prompts((3, 9, 7))]
    chunks = {request.slot: len(request.tokens) for request in requests}
    assert driver.step(chunks).bad_rows.tolist() == []
    assert driver.step({}).bad_rows.tolist() == []
    spoilt = requests[1]
    for layer in runner._cache.layers:
        layer.keys[spoilt.blocks[0]] = layer.values[spoilt.blocks[0]] = float("nan")
    row = sorted(request.slot for request in requests).index(spoilt.slot)
    assert driver.step({}).bad_rows.tolist() == [row]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("preset", ["tiny-llama4", *in_soak("tiny-gemma3")])
def test_windows_and_chunks_have_blocks_of_their_own(
    model_dir: ModelDir, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GR1, WB1: decode steps read each group's tables on the device; what a window has passed is others' meanwhile."""
    path = model_dir(preset)
    runner = CudaRunner(
        path,
        served_model_name="tiny",
        num_slots=8,
        attention="triton",
        dtype="float32",
        num_blocks=60,
        block_size=4,
        max_model_len=80,
        threads=1,
        mean_request_tokens=64,
        max_num_batched_tokens=8,
    )
    (group,) = runner.info.groups
    assert group.num_blocks < runner.info.num_blocks
    runner._cache.fill(GARBAGE)
    sizes, run = [], DecodeStep.run
    monkeypatch.setattr(DecodeStep, "run", lambda step: sizes.append(len(step.inputs.slots)) or run(step))
    prompts, ring = make_prompts((3, 21, group.reach + 9)), LocalRing(runner, None, num_seqs=4)
    clients = [ring.submit(prompt, GROUPED) for prompt in prompts]
    ring.run()
    assert 4 in sizes, "three rows run on the step of four"
    for client, prompt in zip(clients, prompts, strict=True):
        output, logits = generate(path, tuple(prompt), GROUPED)
        assert assert_same_but_for_ties(client.output, output, logits) == 0
