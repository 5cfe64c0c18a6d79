"""The Triton kernels around attention: KV write, norm, rope, gate."""

from __future__ import annotations

import pytest
import torch

from worker_svc.runner.attention.kv_cache import KVCache, LayerCache, LayerShape
from worker_svc.runner.cpu.native.kernels import Activation
from worker_svc.runner.triton.write import TritonKernels, write_kv

NUM_BLOCKS, BLOCK_SIZE = 9, 4
TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 3e-2}


def make_layer(shape: LayerShape, dtype: torch.dtype) -> LayerCache:
    """A layer's cache of NaN."""
    cpu = torch.device("cpu")
    cache = KVCache([shape], num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, dtype=dtype, device=cpu)
    cache.fill(float("nan"))
    return cache.layers[0]


def make_places(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks and offsets, `[count]` each, in random order."""
    places = torch.randperm(NUM_BLOCKS * BLOCK_SIZE)[:count]
    return places // BLOCK_SIZE, places % BLOCK_SIZE


def assert_only_written(cache: torch.Tensor, blocks: torch.Tensor, offsets: torch.Tensor, count: int) -> None:
    """All other positions are still NaN."""
    assert not cache[blocks, :, offsets].isnan().any()
    assert int((~cache.isnan()).all(-1).all(1).sum()) == count
    assert int(cache.isnan().any(-1).any(1).sum()) == NUM_BLOCKS * BLOCK_SIZE - count


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("dims", [(16, 16), (96, 64), (64, 128)])
def test_write(dims: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = make_layer(LayerShape(3, *dims), dtype)
    blocks, offsets = make_places(11)
    # As transformers hands them over: heads apart.
    key, value = (torch.randn(3, 11, dim).to(dtype).transpose(0, 1) for dim in dims)
    write_kv(layer, key, value, blocks, offsets)
    assert torch.equal(layer.keys[blocks, :, offsets], key)
    assert torch.equal(layer.values[blocks, :, offsets], value)
    for cache in (layer.keys, layer.values):
        assert_only_written(cache, blocks, offsets, 11)


def rope(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """`x` `[T, H, D]`, of which the first elements are rotated, as the models of transformers do it."""
    turned, rest = x[..., : cosines.shape[-1]], x[..., cosines.shape[-1] :]
    first, second = turned.chunk(2, dim=-1)
    turned = turned * cosines[:, None] + torch.cat([-second, first], dim=-1) * sines[:, None]
    return torch.cat([turned, rest], dim=-1)


def norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + epsilon).rsqrt() * weight


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("weight_offset", [None, 0.0, 1.0])
@pytest.mark.parametrize(("dim", "rotary_dim"), [(16, 16), (96, 96), (64, 32)])
def test_rope_and_write(dim: int, rotary_dim: int, weight_offset: float | None, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    num_heads, kv_heads, count = 6, 2, 5
    layer = make_layer(LayerShape(kv_heads, dim, dim), dtype)
    blocks, offsets = make_places(count)
    qkv = torch.randn(count, (num_heads + 2 * kv_heads) * dim).to(dtype)
    before = qkv.double().view(count, -1, dim)
    cosines, sines = torch.randn(count, rotary_dim).to(dtype), torch.randn(count, rotary_dim).to(dtype)
    norms = [torch.randn(dim).to(dtype) for _ in range(2)]
    settings = {}
    if weight_offset is not None:
        names = ("query_norm", "key_norm", "epsilon", "weight_offset")
        settings = dict(zip(names, (*norms, 1e-5, weight_offset), strict=True))
    TritonKernels().rope_and_write(
        qkv,
        layer,
        cosines=cosines,
        sines=sines,
        block_ids=blocks,
        offsets=offsets,
        num_heads=num_heads,
        **settings,
    )
    query, key, value = before.split([num_heads, kv_heads, kv_heads], dim=1)
    if weight_offset is not None:
        query, key = (
            norm(x, w.double() + weight_offset, 1e-5) for x, w in zip((query, key), norms, strict=True)
        )
    query, key = (rope(x, cosines.double(), sines.double()) for x in (query, key))

    def error(actual: torch.Tensor, expected: torch.Tensor) -> float:
        return float((actual.double() - expected).abs().max() / expected.abs().max())

    assert error(qkv.view(count, -1, dim)[:, :num_heads], query) < TOLERANCES[dtype]
    assert error(layer.keys[blocks, :, offsets], key) < TOLERANCES[dtype]
    assert torch.equal(layer.values[blocks, :, offsets].double(), value)
    for cache in (layer.keys, layer.values):
        assert_only_written(cache, blocks, offsets, count)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("rounds", [False, True])
@pytest.mark.parametrize("width", [16, 96, 1000])
def test_rms_norm(width: int, rounds: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    x, weight = (3 * torch.randn(2, 3, width)).to(dtype), torch.randn(width).to(dtype)
    actual = TritonKernels().rms_norm(x, weight, 1e-5, 1.0, rounds)
    expected = norm(x.double(), weight.double() + 1, 1e-5)
    assert actual.dtype == dtype
    assert float((actual.double() - expected).abs().max() / expected.abs().max()) < TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("activation", [Activation.SILU, Activation.GELU_TANH])
@pytest.mark.parametrize("width", [16, 1500])
def test_gate(width: int, activation: Activation, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    gate_up = (2 * torch.randn(1, 3, 2 * width)).to(dtype)
    gates, ups = gate_up.double().chunk(2, dim=-1)
    function = torch.nn.functional.silu if activation == Activation.SILU else gelu_tanh
    expected = function(gates) * ups
    actual = TritonKernels().gate(gate_up, activation)
    assert float((actual.double() - expected).abs().max() / expected.abs().max()) < TOLERANCES[dtype]


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x, approximate="tanh")
