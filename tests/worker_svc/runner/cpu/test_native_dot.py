"""The bfloat16 kernels of machines with the dot product: products, attention of prompts, the fused decoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    Ernie4_5Config,
    GlmConfig,
    LlamaConfig,
    MinistralConfig,
    MistralConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    SeedOssConfig,
)

from tests.worker_svc.runner.reference import make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import Driver
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.attention.kv_cache import LayerCache
from worker_svc.runner.attention.ways import Way, whole_rows
from worker_svc.runner.cpu.decoder import FusedDecoder
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.native_linear import NativeLinear, PackedWeight
from worker_svc.runner.sampling.sampler import sample

SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
kernels = native_kernels()
pytestmark = pytest.mark.skipif(
    kernels is None or not kernels.has_dot, reason="this machine has no bfloat16 dot product"
)


def the_kernels() -> Kernels:
    assert kernels is not None
    return kernels


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


@pytest.mark.sampled
@pytest.mark.parametrize("outputs", [32, 96, 100, 7])
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 9, 40])
def test_product_equals_float64(rows: int, outputs: int) -> None:
    x, weight, bias = random(rows, 66), random(outputs, 66, seed=1), random(outputs, seed=2)
    packed = PackedWeight(weight, bias)
    actual = the_kernels().linear(x, packed.call).double()
    expected = x.double() @ weight.double().T + bias.double()
    assert torch.allclose(actual, expected, rtol=2**-8, atol=1e-3)


def test_a_row_does_not_depend_on_the_others() -> None:
    x, packed = random(41, 128), PackedWeight(random(320, 128, seed=1))
    whole = the_kernels().linear(x, packed.call)
    for first, last in ((0, 1), (0, 2), (3, 10), (5, 41), (40, 41)):
        assert torch.equal(the_kernels().linear(x[first:last].contiguous(), packed.call), whole[first:last])


def test_a_layer_takes_the_place_of_another() -> None:
    linear = nn.Linear(64, 50).bfloat16()
    x = random(2, 3, 64)
    ours = NativeLinear([linear], the_kernels())(x)
    assert ours.shape == (2, 3, 50)
    assert torch.allclose(ours.float(), linear(x).float(), atol=2e-2)


def reference(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    position: int,
    window: int | None,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """One query token `[Hq, D]` over `[L, Hkv, D]` in float64: `[Hq, Dv]`."""
    group = query.shape[0] // keys.shape[1]
    keys, values = (part.double().repeat_interleave(group, dim=1) for part in (keys, values))
    low = 0 if window is None else max(0, position - window + 1)
    scores = torch.einsum("hd,lhd->hl", query.double(), keys[low : position + 1]) * query.shape[1] ** -0.5
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None]], dim=1)
    weights = scores.softmax(dim=1)[:, : position + 1 - low]
    return torch.einsum("hl,lhd->hd", weights, values[low : position + 1])


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "value_dim", "window", "softcap", "sinks"),
    [
        (4, 2, 64, 64, None, None, False),
        (8, 1, 32, 96, None, None, False),
        (3, 3, 128, 32, 20, None, False),
        (4, 4, 64, 64, 70, 8.0, False),
        (6, 2, 96, 64, None, None, True),
        (2, 2, 64, 64, 5, 3.0, True),
    ],
)
def test_attention_of_prompts(
    heads: int,
    kv_heads: int,
    dim: int,
    value_dim: int,
    window: int | None,
    softcap: float | None,
    sinks: bool,
) -> None:
    # A decode row, drafts, chunks, and outputs that are computed again: (tokens before, tokens).
    rows = [(30, 1), (130, 3), (0, 17), (0, 90), (60, 4), (75, 64), (200, 41), (9, 1), (190, 4)]
    ways = np.array([Way.DECODE] * 2 + [Way.PROMPT] * 6 + [Way.AGAIN], np.uint8)
    block_size, generator = 16, np.random.default_rng(0)
    width = 16
    table = generator.permutation(len(rows) * width).astype(np.int32).reshape(len(rows), width)
    layer = LayerCache(
        random(len(rows) * width, kv_heads, block_size, dim, seed=1),
        random(len(rows) * width, kv_heads, block_size, value_dim, seed=2),
    )
    known = {}
    for row, (before, tokens) in enumerate(rows):
        length = before + tokens
        blocks, offsets = (
            table[row, np.arange(width * block_size) // block_size],
            np.arange(width * block_size),
        )
        keys, values = (part[blocks, :, offsets % block_size] for part in (layer.keys, layer.values))
        known[row] = keys[:length].clone(), values[:length].clone()
        # What is behind a sequence in its last block was never written.
        layer.keys[blocks[length:], :, offsets[length:] % block_size] = torch.nan
        layer.values[blocks[length:], :, offsets[length:] % block_size] = torch.nan
    starts = np.concatenate(([0], np.cumsum([tokens for _, tokens in rows]))).astype(np.int32)
    positions = np.concatenate([np.arange(b, b + n) for b, n in rows]).astype(np.int32)
    qkv = random(int(starts[-1]), heads + 2 * kv_heads, dim, seed=3)
    query = qkv[:, :heads]
    out = torch.full((int(starts[-1]), heads, value_dim), torch.nan).bfloat16()
    sink_scores = torch.randn(heads) if sinks else None
    the_kernels().attend(
        query,
        layer,
        out,
        query_starts=starts,
        positions=positions,
        ways=ways,
        block_tables=table,
        scaling=dim**-0.5,
        sliding_window=window,
        softcap=softcap,
        sinks=sink_scores,
    )
    for row, (before, tokens) in enumerate(rows):
        for t in range(tokens):
            token = int(starts[row]) + t
            expected = reference(query[token], *known[row], before + t, window, softcap, sink_scores)
            assert torch.allclose(out[token].double(), expected, rtol=2e-2, atol=2e-2), (row, t)


def test_a_chunk_does_not_change_its_queries() -> None:
    length, block_size = 150, 16
    layer = LayerCache(random(10, 2, block_size, 64), random(10, 2, block_size, 64, seed=1))
    table = np.arange(10, dtype=np.int32)[None]
    query = random(length, 4, 64, seed=2)

    def attend(first: int, last: int) -> torch.Tensor:
        out = torch.empty(last - first, 4, 64).bfloat16()
        the_kernels().attend(
            query[first:last],
            layer,
            out,
            query_starts=np.array([0, last - first], np.int32),
            positions=np.arange(first, last, dtype=np.int32),
            ways=whole_rows(1, 0),
            block_tables=table,
            scaling=0.125,
        )
        return out

    whole = attend(0, length)
    for first, last in ((0, 16), (0, 64), (16, 90), (33, 49), (90, 150), (20, 23), (149, 150)):
        assert torch.equal(attend(first, last), whole[first:last])


def test_a_short_chunk_does_not_depend_on_the_rows_before_it() -> None:
    layer = LayerCache(random(10, 2, 16, 64), random(10, 2, 16, 64, seed=1))
    query = random(43, 4, 64, seed=2)
    starts, positions = np.array([0, 40, 43], np.int32), np.r_[0:40, 20:23].astype(np.int32)
    table = np.array([[0, 1, 2], [3, 4, 5]], np.int32)

    def attend(rows: slice, first: int, last: int) -> torch.Tensor:
        out = torch.empty(last - first, 4, 64).bfloat16()
        the_kernels().attend(
            query[first:last],
            layer,
            out,
            query_starts=starts[rows.start : rows.stop + 1] - starts[rows.start],
            positions=positions[first:last],
            ways=whole_rows(rows.stop - rows.start, 0),
            block_tables=table[rows],
            scaling=0.125,
        )
        return out

    assert torch.equal(attend(slice(0, 2), 0, 43)[40:], attend(slice(1, 2), 40, 43))


CONFIGS = {
    "llama": LlamaConfig(tie_word_embeddings=False, **SIZES),
    "ernie4_5": Ernie4_5Config(head_dim=32, use_bias=True, pad_token_id=0, **SIZES),
    "glm": GlmConfig(head_dim=32, attention_bias=True, pad_token_id=0, **SIZES),
    "phi3": Phi3Config(
        sliding_window=24,
        pad_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        **SIZES,
    ),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(head_dim=32, **SIZES),
    "mistral": MistralConfig(head_dim=64, sliding_window=24, **SIZES),
    "ministral": MinistralConfig(
        head_dim=32,
        sliding_window=24,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        **SIZES,
    ),
    "seed_oss": SeedOssConfig(
        head_dim=32, attention_bias=True, attention_out_bias=True, pad_token_id=0, **SIZES
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("family", CONFIGS)
def test_fused_decoder_is_as_exact_as_the_model_itself(family: str, tmp_path: Path) -> None:
    """Errors to float32 of the same weights, in standard deviations of the logits: chunks, decode rows, drafts."""
    torch.manual_seed(0)
    module = AutoModelForCausalLM.from_config(CONFIGS[family], dtype=torch.bfloat16)
    for name, parameter in module.named_parameters():
        nn.init.normal_(parameter, std=0.5 if "embed" in name or "bias" in name else 0.15)
        if "norm" in name:
            nn.init.normal_(parameter, mean=1.0, std=0.2)
    module.save_pretrained(tmp_path)
    runner = make_runner(tmp_path, dtype="bfloat16", block_size=16)
    assert any(isinstance(part, FusedDecoder) for part in runner.model.module.modules())
    driver = Driver(runner)
    logits: list[tuple[list[int], torch.Tensor]] = []
    requests = [driver.add(prompt, 4) for prompt in make_prompts((90, 33, 5))]

    def step(chunks: dict[int, int]) -> None:
        rows, batch = driver.build(chunks)
        made = runner.forward(batch)
        for number, row in enumerate(batch.sample_rows.tolist()):
            request = rows[row][0]
            drafts = int((batch.sample_rows[:number] == row).sum())
            logits.append((request.tokens + request.drafts[:drafts], made[number].float()))
        driver._apply(rows, batch, sample(made, batch))

    step({requests[0].slot: 70})
    step({requests[0].slot: 20, requests[1].slot: 33, requests[2].slot: 5})
    requests[1].drafts = [7, 8, 9]
    step({})
    step({})
    exact, itself = (
        AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype, attn_implementation="eager").eval()
        for dtype in (torch.float32, torch.bfloat16)
    )
    ours, theirs = [], []
    with torch.inference_mode():
        for tokens, made in logits:
            expected = exact(torch.tensor([tokens])).logits[0, -1]
            ours.append(float((made - expected).square().mean().sqrt() / expected.std()))
            other = itself(torch.tensor([tokens])).logits[0, -1].float()
            theirs.append(float((other - expected).square().mean().sqrt() / expected.std()))
    print(
        f"{family}: error {np.mean(ours):.4f}, the model's own code {np.mean(theirs):.4f}, {len(ours)} positions"
    )
    assert np.mean(ours) <= 1.25 * np.mean(theirs)
    assert np.max(ours) < 0.1
