"""Layers whose queries look at their own chunk of positions alone (Llama 4): usual kernels, on rows cut at chunks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.worker_svc.runner.reference import assert_greedy, attend_in_float64, make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import GARBAGE, Driver
from tests.worker_svc.runner.test_invariance import Recording, is_same
from worker_svc.runner import torch_runner
from worker_svc.runner.attention.attention import PagedBatch, attend, native_kernels
from worker_svc.runner.attention.kv_cache import KVCache, LayerShape
from worker_svc.runner.attention.torch_attention import Scores
from worker_svc.runner.cpu.experts.fused_experts import FusedExperts
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model import checkpoint
from worker_svc.runner.model.kept_weights import Quantization
from worker_svc.runner.model.llama4 import RoutedExperts
from worker_svc.runner.model.loading import load_model
from worker_svc.runner.model.support import check_config

ModelDir = Callable[[str], Path]
CHUNK, BLOCK = 8, 4
NUM_TOKENS = 24
SCORES = Scores(scaling=0.3, chunk=CHUNK)


@pytest.mark.parametrize(
    ("spans", "num_decode_rows"),
    [
        ([(7, 8), (8, 9), (3, 4), (0, 30), (13, 16), (16, 17)], 3),
        ([(6, 10), (22, 25), (5, 6), (1, 2)], 4),
        ([(0, 8)], 0),
        ([(15, 41)], 0),
    ],
    ids=[
        "decode rows and prompts",
        "drafts over the end of a chunk",
        "one chunk",
        "a prompt from a chunk's last",
    ],
)
def test_a_query_sees_its_chunk_alone(spans: list[tuple[int, int]], num_decode_rows: int) -> None:
    """As a query of a sequence that begins with its chunk, whatever the other rows are."""
    generator = torch.Generator().manual_seed(0)
    ends = [end for _, end in spans]
    blocks = np.random.default_rng(0).permutation(sum(-(-end // BLOCK) for end in ends)).astype(np.int32)
    shape = LayerShape(2, 16, 16)
    cache = KVCache(
        [shape], num_blocks=len(blocks), block_size=BLOCK, dtype=torch.float32, device=torch.device("cpu")
    )
    cache.fill(GARBAGE)
    tables = np.zeros((len(spans), -(-max(ends) // BLOCK)), np.int32)
    contexts = []
    for row, end in enumerate(ends):
        needed = -(-end // BLOCK)
        tables[row, :needed], blocks = blocks[:needed], blocks[needed:]
        keys, values = torch.randn(2, end, 2, 16, generator=generator)
        at = torch.arange(end)
        cache.layers[0].write(keys, values, torch.from_numpy(tables[row]).long()[at // BLOCK], at % BLOCK)
        contexts.append((keys, values))
    batch = PagedBatch(
        cache=cache,
        num_decode_rows=num_decode_rows,
        query_starts=np.cumsum([0, *(end - start for start, end in spans)]).astype(np.int32),
        positions=np.concatenate([np.arange(*span) for span in spans]).astype(np.int32),
        block_tables=tables,
        device=torch.device("cpu"),
    )
    query = torch.randn(len(batch.positions), 4, 16, generator=generator)
    out = attend(query, cache.layers[0], batch, SCORES)
    token = 0
    for (keys, values), (start, end) in zip(contexts, spans, strict=True):
        for position in range(start, end):
            first = position // CHUNK * CHUNK
            seen = slice(first, position + 1)
            expected = attend_in_float64(
                query[token : token + 1], keys[seen], values[seen], position - first, SCORES
            )
            assert torch.allclose(out[token : token + 1].double(), expected, atol=1e-5)
            token += 1
    cut = batch.within_chunks(CHUNK)
    assert torch.equal(cut.block_ids, batch.block_ids)
    assert torch.equal(cut.offsets, batch.offsets)


def test_transformers_own_modules_answer_alike(model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is fused: queries grow with the positions of each row."""
    monkeypatch.setattr(torch_runner, "optimize", lambda *_: None)
    path = model_dir("tiny-llama4")
    runner = make_runner(path)
    modules = list(runner.model.module.modules())
    assert any(isinstance(module, RoutedExperts) for module in modules)
    assert not any(isinstance(module, FusedExperts) for module in modules)
    driver = Driver(runner)
    prompts = make_prompts((1, 17, 40))
    requests = [driver.add(prompt, NUM_TOKENS) for prompt in prompts]
    driver.run(chunk_size=30)
    ties = sum(
        assert_greedy(request.output, path, prompt, NUM_TOKENS)
        for request, prompt in zip(requests, prompts, strict=True)
    )
    assert ties == 0


def test_a_result_does_not_depend_on_the_batch(model_dir: ModelDir) -> None:
    """I10 beside other rows, over ends of chunks."""
    kernels = native_kernels()
    if kernels is None or not kernels.has_dot:
        pytest.skip("this machine has no bfloat16 dot product")
    runner = make_runner(model_dir("tiny-llama4"), dtype="bfloat16", block_size=16)
    found = []
    for others in ((), (3, 30, 31, 12)):
        driver = Recording(runner)
        request = driver.add(make_prompts((37,))[0], 16)
        company = [driver.add(prompt, 16) for prompt in make_prompts(others)] if others else []
        driver.step({each.slot: len(each.tokens) for each in (request, *company)})
        while not request.is_finished:
            driver.step({})
        found.append(driver.logits[request.slot])
    assert len(found[0]) == 16
    assert is_same(*found)


@pytest.mark.parametrize("quantization", [Quantization.INT8, Quantization.INT4])
def test_experts_are_rounded_like_those_of_others(model_dir: ModelDir, quantization: Quantization) -> None:
    if native_kernels() is None:
        pytest.skip("there are no native kernels")
    model = load_model(model_dir("tiny-llama4"), dtype="float32", quantization=quantization)
    # 3 layers with 4 projections, 3 matrices of 2 shared experts and of 1 MLP, a head; 2 layers with 4 experts of 2.
    assert model.num_kept == 3 * 4 + 3 * 3 + 1 + 2 * 4 * 2
    make_runner(model_dir("tiny-llama4"), quantization=quantization)  # compared with that by the probe


def test_chunks_that_cannot_be_served_are_refused(model_dir: ModelDir) -> None:
    path = model_dir("tiny-llama4")
    with pytest.raises(ModelLoadError, match="attention_chunk_size 16 of the model is not in whole blocks"):
        make_runner(path, block_size=32)
    config = checkpoint.read_json(path / checkpoint.CONFIG)
    for wrong in (None, 0, "16"):
        with pytest.raises(ModelLoadError, match="attention_chunk_size"):
            check_config(config | {"attention_chunk_size": wrong}, path)
    with pytest.raises(
        ModelLoadError, match="layer type 'chunked_attention' of model_type 'llama' is not one of"
    ):
        check_config(config | {"model_type": "llama"}, path)
