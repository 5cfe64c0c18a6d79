"""Every shipped library that this CPU runs gives the bits of the one that is compiled here."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.worker_svc.runner.cpu.shipped.conftest import HERE, needs_compiler
from tests.worker_svc.runner.cpu.state_layers import Shape, make_layer, make_native, make_rows
from tests.worker_svc.runner.cpu.test_kept_linear import make_matrix, random_rows
from tests.worker_svc.runner.cpu.test_native_choice import LIMITS, choices_of, rows_of
from tests.worker_svc.runner.reference import make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import Driver
from tests.worker_svc.runner.test_paged_attention import DECODE_ROWS, PREFILL_ROWS, Case
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.runner import torch_runner
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.torch_attention import Scores
from worker_svc.runner.cpu import optimize
from worker_svc.runner.cpu.flags import cpu_flags
from worker_svc.runner.cpu.native import build
from worker_svc.runner.cpu.native.kernels import TILE, Activation, Kernels
from worker_svc.runner.cpu.native.library import open_shipped
from worker_svc.runner.cpu.native_linear import PackedWeight
from worker_svc.runner.cpu.packed_codes import PackedCodes
from worker_svc.runner.cpu.shipped.isas import Isa, runnable
from worker_svc.runner.cpu.shipped.manifest import read_manifest
from worker_svc.runner.sampling import sampler

HERE_RUNNABLE = runnable(HERE, cpu_flags())
DTYPES = (torch.float32, torch.bfloat16)
USERS = (attention, optimize, sampler, torch_runner)
pytestmark = [needs_compiler, pytest.mark.slow, pytest.mark.timeout(900)]
isas = pytest.mark.parametrize("isa", HERE_RUNNABLE, ids=lambda isa: isa.name)


def shipped(libraries: Path, isa: Isa) -> Kernels:
    manifest = read_manifest(libraries)
    assert manifest is not None
    return Kernels(open_shipped(libraries, isa, manifest))


def compiled(isa: Isa | None = None) -> Kernels:
    """As they are compiled at a first start: for this CPU, or as if it were another one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "OPTIONS", (*build.OPTIONS, *(isa.options if isa else ())))
        return Kernels(ctypes.CDLL(str(build.built_library(build.find_compiler()))))


def small_kernels(kernels: Kernels) -> Iterator[torch.Tensor]:
    for dtype in DTYPES:
        x, weight = random_rows(7, dtype, 1030), random_rows(1, dtype, 1030)[0]
        yield kernels.rms_norm(x, weight, 1e-5, 1.0, True)
        gate_up = 3 * random_rows(5, dtype, 2 * 96)  # no result is subnormal, which AVX512_BF16 rounds to 0
        for activation in Activation:
            yield kernels.gate(gate_up, activation)
        yield torch.from_numpy(kernels.argmax(x))


def products(kernels: Kernels) -> Iterator[torch.Tensor]:
    for bits, group, has_offsets, is_half in (
        (4, 32, False, True),
        (4, 128, True, False),
        (8, 16, True, True),
        (8, 32, False, True),
    ):
        packed = PackedCodes(make_matrix(96, bits, group, has_offsets, is_half))
        for dtype in DTYPES:
            for rows in (1, 3, 8, 41):
                yield kernels.linear_quantised(random_rows(rows, dtype), packed.call)
    if kernels.has_dot:
        weight = PackedWeight(random_rows(100, torch.bfloat16))
        for rows in (1, 5, 40):
            yield kernels.linear(random_rows(rows, torch.bfloat16), weight.call)


def loading(kernels: Kernels) -> Iterator[torch.Tensor]:
    for dtype in DTYPES:
        numbers = random_rows(70, dtype)
        yield from kernels.round_groups(numbers)
        yield from kernels.round_to_bytes(numbers)
    rows = random_rows(2 * TILE, torch.float32, 6 * 22)
    starts = rows.data_ptr() + np.arange(len(rows)) * rows.stride(0) * rows.itemsize
    for group_words in (6 * 22, 22):
        packed = torch.zeros(2, 6 * 22 // group_words, 2 * TILE + 4 * TILE * group_words, dtype=torch.uint8)
        kernels.pack_rows(starts, packed, words=6 * 22, group_words=group_words, head_bytes=2 * TILE, flips=3)
        yield packed


def attention_of_rows(kernels: Kernels) -> Iterator[torch.Tensor]:
    for dtype in DTYPES if kernels.has_dot else DTYPES[:1]:
        for seed, shape in enumerate(((4, 4, 16), (8, 1, 64), (6, 2, 128))):
            for window, softcap in ((None, None), (37, 20.0)):
                rows = DECODE_ROWS + PREFILL_ROWS
                case = Case(rows, len(DECODE_ROWS), shape, dtype=dtype, seed=seed)
                scores = Scores(scaling=shape[2] ** -0.5, sliding_window=window, softcap=softcap)
                # Not around a yield: two of these run in turns.
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(attention, "native_kernels", lambda: kernels)
                    attended = attention.attend(case.query, case.layer, case.batch, scores)
                yield attended


@torch.inference_mode()
def recurrent_states(kernels: Kernels) -> Iterator[torch.Tensor]:
    for dtype in DTYPES:
        for shape in (Shape(2, 4, 24, 80, 4), Shape(1, 2, 128, 128, 3)):
            layer = make_layer("qwen3.5", shape, dtype)
            rows = make_rows(layer, [1, 40, 2], [0, NOTHING, 4], [1, 3, 5])
            width = 2 * shape.key_heads * shape.key_dim + shape.value_heads * (2 * shape.value_dim + 2)
            yield make_native(layer, kernels).mix(random_rows(43, dtype, width), rows)
            yield from rows.store.layers[0]
        for family, shape in (
            ("bamba", Shape(1, 4, 128, 64, 4)),
            ("bamba", Shape(2, 8, 64, 24, 3)),
            ("falcon", Shape(2, 8, 64, 24, 3)),
            ("lfm2", Shape(0, 1, 0, 150, 3)),
        ):
            layer = make_layer(family, shape, dtype)
            rows = make_rows(layer, [1, 40, 2], [0, NOTHING, 4], [1, 3, 5])
            yield make_native(layer, kernels).mix(random_rows(43, dtype, layer.in_proj.out_features), rows)
            yield from rows.store.layers[0]


def choices(kernels: Kernels) -> Iterator[torch.Tensor]:
    for size in (17, 1000, 40_000):
        for kind in ("normal", "bfloat16", "impossible", "far apart"):
            scores = rows_of(kind, size)
            params = [each for each in LIMITS for _ in scores]
            numbers = np.random.default_rng(size).random(len(params))
            told = choices_of(params, numbers, size)
            yield torch.from_numpy(kernels.choose(scores.repeat(len(LIMITS), 1), told))
    seeds = np.arange(100, dtype=np.uint64) * np.uint64(2**57 + 3)
    yield torch.from_numpy(
        kernels.uniforms(seeds, np.arange(100, dtype=np.uint32), np.arange(100, dtype=np.int32), 1)
    )


PARTS: tuple[Callable[[Kernels], Iterator[torch.Tensor]], ...] = (
    small_kernels,
    products,
    loading,
    attention_of_rows,
    recurrent_states,
    choices,
)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
@isas
def test_kernels(libraries: Path, isa: Isa, part: Callable[[Kernels], Iterator[torch.Tensor]]) -> None:
    """With fewer instructions, too: but for what multiplies bfloat16 at once, and for CPUs without a fused
    multiplication, which are compared with what is compiled for such a CPU."""
    ours = shipped(libraries, isa)
    theirs = compiled() if isa.flags else compiled(isa)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theirs, "has_dot", ours.has_dot)
        for number, (one, another) in enumerate(zip(part(ours), part(theirs), strict=True)):
            assert torch.equal(one.view(torch.uint8), another.view(torch.uint8)), (part.__name__, number)


def cache_after(
    kernels: Kernels, path: Path, dtype: str, patch: pytest.MonkeyPatch
) -> tuple[list[list[int]], list[torch.Tensor]]:
    """Outputs of a few requests, and all keys and values that were written: they show each bit of each layer."""
    for user in USERS:
        patch.setattr(user, "native_kernels", lambda: kernels)
    runner = make_runner(path, dtype=dtype)
    driver = Driver(runner)
    for number, prompt in enumerate(make_prompts()):
        driver.add(prompt, 20, SamplingParams(temperature=1.0, top_p=0.9, seed=number))
    driver.run()
    outputs = [request.output for request in driver.requests]
    return outputs, [part.clone() for layer in runner._cache.layers for part in (layer.keys, layer.values)]


@pytest.mark.parametrize("preset", ["tiny-llama", "tiny-gemma3"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_whole_model(
    libraries: Path,
    model_dir: Callable[[str], Path],
    preset: str,
    dtype: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    best = shipped(libraries, HERE_RUNNABLE[0])
    ours, our_cache = cache_after(best, model_dir(preset), dtype, monkeypatch)
    theirs, their_cache = cache_after(compiled(), model_dir(preset), dtype, monkeypatch)
    assert ours == theirs
    assert all(torch.equal(a, b) for a, b in zip(our_cache, their_cache, strict=True))
