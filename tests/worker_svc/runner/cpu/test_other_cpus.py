"""Kernels compiled for CPUs that are not here, run by an emulator: the same numbers, bit for bit."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.worker_svc.runner.cpu.test_kept_linear import INPUTS, make_matrix, random_rows
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.cpu.native import build
from worker_svc.runner.cpu.packed_codes import PackedCodes

EMULATOR = "qemu-aarch64-static"
COMPILERS = ("aarch64-linux-gnu-g++", "aarch64-linux-gnu-g++-12")
CPUS = {"plain": "armv8-a", "dot product": "armv8.2-a+dotprod", "bfloat16": "armv8.6-a+bf16+i8mm"}
compiler = next(filter(shutil.which, COMPILERS), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        compiler is None or shutil.which(EMULATOR) is None or native_kernels() is None,
        reason="there is no cross compiler for aarch64, no emulator of it, or no compiler at all",
    ),
]


@pytest.fixture(scope="module", params=CPUS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """one_product.cpp as built for that CPU."""
    assert compiler is not None
    built = tmp_path_factory.mktemp("aarch64") / "one_product"
    options = [each for each in build.OPTIONS if each not in ("-march=native", "-shared", "-fPIC")]
    source = Path(__file__).with_name("one_product.cpp")
    cpu = f"-march={CPUS[request.param]}"
    build.run([compiler, *options, cpu, "-static", f"-I{build.SOURCE.parent}", str(source), "-o", str(built)])
    return built


def test_products_of_whole_numbers_are_those_of_this_cpu(program: Path, tmp_path: Path) -> None:
    kernels = native_kernels()
    assert kernels is not None
    for bits, group, has_offsets, is_half, is_e2m1 in (
        (4, 32, False, True, False),
        (4, 128, True, False, False),
        (4, 16, False, False, True),
        (4, 32, False, True, True),
        (8, 16, False, True, False),
        (8, 32, True, True, False),
        (8, INPUTS, False, False, False),
    ):
        for dtype in (torch.float32, torch.bfloat16):
            packed = PackedCodes(make_matrix(64, bits, group, has_offsets, is_half, is_e2m1=is_e2m1))
            x = random_rows(11, dtype)
            expected = kernels.linear_quantised(x, packed.call)
            actual = product_of(program, tmp_path, packed, x)
            assert torch.equal(actual, expected), (bits, group, dtype)


def product_of(program: Path, folder: Path, packed: PackedCodes, x: torch.Tensor) -> torch.Tensor:
    """The product as the program computes it."""
    call = packed.call
    sizes = [len(x), call.inputs, call.outputs, call.group, call.bits, call.scale_bytes, call.has_offsets]
    head = np.array([*sizes, call.is_e2m1, x.dtype == torch.bfloat16, packed.packed.nbytes], np.int64)
    parts = (head, packed.packed.numpy(), x.view(torch.uint8).numpy())
    (folder / "call").write_bytes(b"".join(part.tobytes() for part in parts))
    subprocess.run(
        [EMULATOR, str(program), str(folder / "call"), str(folder / "out")], check=True, timeout=300
    )
    out = bytearray((folder / "out").read_bytes())
    return torch.frombuffer(out, dtype=x.dtype).view(len(x), -1)
