"""The small kernels against float64, and how the library is built."""

from __future__ import annotations

import logging
import multiprocessing
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from worker_svc.runner.attention.kv_cache import KVCache, LayerShape
from worker_svc.runner.cpu.native import build, library
from worker_svc.runner.cpu.native.build import has_compiler
from worker_svc.runner.cpu.native.kernels import Activation, Kernels, load_kernels

GARBAGE = 1e4
MAX_COLUMNS = 120
HALF_STEP = {torch.float32: 2e-6, torch.bfloat16: 2.0**-8}
"""Relative rounding of a result."""
DTYPES = pytest.mark.parametrize("dtype", HALF_STEP)

needs_compiler = pytest.mark.skipif(load_kernels() is None, reason="there is no C++ compiler")


@pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler")
def test_where_there_is_a_compiler_there_are_kernels() -> None:
    """Else all that is tried with them would be skipped, and look well."""
    assert load_kernels() is not None


def assert_close(actual: torch.Tensor, expected: torch.Tensor, steps: float = 1.0) -> None:
    """`steps` roundings of the result's dtype, relative to the expected size."""
    allowed = steps * HALF_STEP[actual.dtype] * (expected.abs() + 0.01)
    assert ((actual.double() - expected).abs() <= allowed).all()


@DTYPES
@pytest.mark.parametrize("dim", [16, 64, 100, 512, 1030])
@pytest.mark.parametrize(("offset", "rounds"), [(0.0, True), (0.0, False), (1.0, False)])
def test_rms_norm(kernels: Kernels, dim: int, offset: float, rounds: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(dim)
    x, weight = (3 * torch.randn(2, 5, dim)).to(dtype), torch.randn(dim).to(dtype)
    normal = x.double() * (x.double().square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    expected = normal * (weight.double() + offset)
    assert_close(kernels.rms_norm(x, weight, 1e-5, offset, rounds), expected, steps=2.5)


@DTYPES
@pytest.mark.parametrize("width", [16, 96, 1536])
@pytest.mark.parametrize("activation", Activation)
def test_gate(kernels: Kernels, width: int, activation: Activation, dtype: torch.dtype) -> None:
    torch.manual_seed(width)
    gate_up = (4 * torch.randn(1, 7, 2 * width)).to(dtype)
    gates, ups = gate_up.double().chunk(2, dim=-1)
    function = F.silu if activation == Activation.SILU else (lambda x: F.gelu(x, approximate="tanh"))
    assert_close(kernels.gate(gate_up, activation), function(gates) * ups, steps=4)


@DTYPES
@pytest.mark.parametrize("size", [1, 15, 16, 1000, 4099])
def test_argmax(kernels: Kernels, size: int, dtype: torch.dtype) -> None:
    """With many equals, infinities, and numbers that are none: as torch has it."""
    torch.manual_seed(size)
    values = torch.randint(-5, 5, (6, size)).to(dtype)
    values[1] = torch.randn(size).to(dtype)
    values[2, size // 2] = torch.inf
    values[3] = -torch.inf
    values[4, size // 2 :] = torch.nan
    expected = values.float().argmax(-1)
    assert kernels.argmax(values).tolist() == expected.tolist()


def rotated(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """`[T, H, D]` in float64, the first `cosines.shape[1]` elements of each head rotated."""
    count = cosines.shape[1]
    left, right = x[..., : count // 2], x[..., count // 2 : count]
    turned = torch.cat([-right, left], dim=-1)
    return torch.cat([x[..., :count] * cosines[:, None] + turned * sines[:, None], x[..., count:]], dim=-1)


@DTYPES
@pytest.mark.parametrize(("dim", "rotary_dim"), [(16, 16), (64, 64), (80, 32), (128, 128)])
@pytest.mark.parametrize("with_norms", [False, True])
def test_rope_and_write(
    kernels: Kernels, dim: int, rotary_dim: int, with_norms: bool, dtype: torch.dtype
) -> None:
    """Q and K come out normalized and rotated; the cache holds K and V where they belong, else what it held."""
    torch.manual_seed(dim)
    tokens, heads, kv_heads, block_size = 11, 6, 2, 4
    cache = KVCache(
        [LayerShape(kv_heads, dim, dim)],
        num_blocks=9,
        block_size=block_size,
        dtype=dtype,
        device=torch.device("cpu"),
    )
    cache.fill(GARBAGE)
    layer = cache.layers[0]
    qkv = torch.randn(tokens, (heads + 2 * kv_heads) * dim).to(dtype)
    before = qkv.view(tokens, -1, dim).double()
    angles = torch.randn(tokens, rotary_dim // 2).repeat(1, 2)
    cosines, sines = angles.cos().to(dtype), angles.sin().to(dtype)
    places = torch.from_numpy(np.random.default_rng(dim).permutation(9 * block_size)[:tokens].copy())
    block_ids, offsets = places // block_size, places % block_size
    norms: dict[str, Any] = {}
    expected = before.clone()
    if with_norms:
        norms = {
            "query_norm": torch.rand(dim).to(dtype),
            "key_norm": torch.rand(dim).to(dtype),
            "epsilon": 1e-5,
        }
        weights = torch.stack([norms["query_norm"]] * heads + [norms["key_norm"]] * kv_heads).double()
        scale = (before.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        expected[:, : heads + kv_heads] = (before * scale)[:, : heads + kv_heads] * weights
    expected[:, : heads + kv_heads] = rotated(
        expected[:, : heads + kv_heads], cosines.double(), sines.double()
    )
    kernels.rope_and_write(
        qkv,
        layer,
        cosines=cosines,
        sines=sines,
        block_ids=block_ids,
        offsets=offsets,
        num_heads=heads,
        **norms,
    )
    after = qkv.view(tokens, -1, dim)
    assert (after.double() - expected).abs().max() < 6 * HALF_STEP[dtype] * expected.abs().max()
    keys, values = layer.keys[block_ids, :, offsets], layer.values[block_ids, :, offsets]
    assert torch.equal(keys, after[:, heads : heads + kv_heads])
    assert torch.equal(values, after[:, heads + kv_heads :])
    layer.keys[block_ids, :, offsets] = GARBAGE
    layer.values[block_ids, :, offsets] = GARBAGE
    assert (layer.keys == torch.tensor(GARBAGE, dtype=dtype)).all()
    assert (layer.values == torch.tensor(GARBAGE, dtype=dtype)).all()


@pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler")
def test_all_that_is_compiled_is_in_the_key() -> None:
    """A header in a folder that is forgotten would leave an old library in use."""
    told = build.run([build.find_compiler(), "-std=c++20", "-MM", str(build.SOURCE)])
    names = told.partition(":")[2].replace("\\\n", " ").split()
    assert {Path(name).resolve() for name in names} == set(build.source_files())


def test_lines_of_sources_fit() -> None:
    long = [(path.name, len(line)) for path in build.source_files() for line in path.read_text().splitlines()]
    assert not [(name, length) for name, length in long if length > MAX_COLUMNS]


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No library built yet, and a source that is built in no time; what is loaded in a test is forgotten after it."""
    source = tmp_path / "source" / "kernels.cpp"
    source.parent.mkdir()
    source.write_text('extern "C" int answer() { return 42; }\n')
    monkeypatch.setattr(build, "SOURCE", source)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.load_library.cache_clear()
    yield tmp_path
    library.load_library.cache_clear()


@pytest.mark.parametrize("compiler", ["no-such-compiler", "/bin/false"])
def test_without_a_compiler_there_is_a_warning_that_says_what_it_costs(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, compiler: str
) -> None:
    monkeypatch.setenv("CXX", compiler)
    with caplog.at_level(logging.WARNING):
        assert library.load_library() is None
    assert "six to eleven times as long" in caplog.text


def build_in_process(results: Any) -> None:
    results.put(str(build.built_library(build.find_compiler())))


@needs_compiler
def test_processes_that_start_together_build_one_whole_library(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only one of them has the compiler do it."""
    compiler, calls = fresh_cache / "compiler", fresh_cache / "calls"
    compiler.write_text(f'#!/bin/sh\n[ "$1" = --version ] || echo >> {calls}; sleep 0.3\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    context = multiprocessing.get_context("fork")
    results: Any = context.Queue()
    processes = [context.Process(target=build_in_process, args=(results,)) for _ in range(3)]
    for process in processes:
        process.start()
    paths = {results.get(timeout=60) for _ in processes}
    for process in processes:
        process.join(timeout=60)
    assert len(paths) == 1
    assert calls.read_text() == "\n"
    assert [path.name for path in (fresh_cache / "signalbox").iterdir()] == [Path(paths.pop()).name]
    loaded = library.load_library()
    assert loaded is not None
    assert loaded.answer() == 42


@needs_compiler
def test_library_is_built_once(fresh_cache: Path) -> None:
    built = build.built_library(build.find_compiler())
    first = built.stat().st_mtime_ns
    assert build.built_library(build.find_compiler()) == built
    assert built.stat().st_mtime_ns == first


def test_a_builder_that_is_stopped_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H7: a stopped process keeps its lock."""
    monkeypatch.setattr(build, "BUILD_TIMEOUT_S", 0.2)
    with build.one_builder(tmp_path / "kernels.so"), build.one_builder(tmp_path / "kernels.so"):
        assert (tmp_path / "kernels.lock").exists()


@needs_compiler
def test_cache_that_cannot_be_written_is_no_obstacle(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fresh_cache / "file").write_text("not a directory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(fresh_cache / "file"))
    elsewhere = fresh_cache / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    loaded = library.load_library()
    assert loaded is not None
    assert loaded.answer() == 42
    assert not list(elsewhere.iterdir()), "it is loaded, and no file is left"


@needs_compiler
@pytest.mark.parametrize("planted_mode", [0o777, 0o770])
def test_what_others_could_have_planted_is_not_loaded(fresh_cache: Path, planted_mode: int) -> None:
    """With HOME=/tmp, as some images have it, others may make the directory before us."""
    planted = build.built_library(build.find_compiler())
    build.SOURCE.with_name("other.cpp").write_text('extern "C" int answer() { return 666; }\n')
    build.run(["g++", "-shared", "-fPIC", str(build.SOURCE.with_name("other.cpp")), "-o", str(planted)])
    planted.parent.chmod(planted_mode)
    loaded = library.load_library()
    assert loaded is not None
    assert loaded.answer() == 42


@needs_compiler
def test_a_library_that_others_may_write_is_not_loaded(fresh_cache: Path) -> None:
    planted = build.built_library(build.find_compiler())
    planted.write_bytes(b"planted")
    planted.chmod(0o666)
    loaded = library.load_library()
    assert loaded is not None
    assert loaded.answer() == 42
