"""Kernels compiled for CPUs that are not here, run by an emulator: the same numbers as here, bit for bit."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.pairs import ALL_COMBINATIONS
from tests.worker_svc.runner.cpu import test_native_dot
from tests.worker_svc.runner.cpu.emulated_kernels import EmulatedLibrary
from tests.worker_svc.runner.cpu.kept_builds import kept_program
from tests.worker_svc.runner.cpu.kernel_parts import PARTS, Part, rotations
from tests.worker_svc.runner.test_paged_attention import DECODE_ROWS, PREFILL_ROWS, TOLERANCES, Case
from worker_svc.runner import torch_runner
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.torch_attention import Scores
from worker_svc.runner.cpu import optimize
from worker_svc.runner.cpu.native import build
from worker_svc.runner.cpu.native.kernels import Kernels, load_kernels
from worker_svc.runner.cpu.native_linear import PackedWeight
from worker_svc.runner.cpu.shipped.isas import ISAS, Isa
from worker_svc.runner.sampling import sampler

F64 = NDArray[np.float64]
USERS = (attention, optimize, sampler, torch_runner)

EMULATOR = "qemu-aarch64-static"
COMPILERS = ("aarch64-linux-gnu-g++", "aarch64-linux-gnu-g++-12")
SOURCE = Path(__file__).with_name("calls.cpp")
CPUS = [isa for isa in ISAS if isa.machine == "aarch64"][: None if ALL_COMBINATIONS else 1]
"""Each takes a minute to compile for, and more: `make soak` has all of them."""
WITH_DOT = [isa for isa in CPUS if "bf16" in isa.flags]
compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
ours = load_kernels()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        compiler is None or shutil.which(EMULATOR) is None or ours is None,
        reason="there is no cross compiler for aarch64, no emulator of it, or no compiler at all",
    ),
]


def name_of(isa: Isa) -> str:
    return isa.name


def program(isa: Isa) -> Path:
    """calls.cpp as built for that CPU, and kept between runs: that takes a minute."""
    assert compiler is not None
    options = [each for each in build.OPTIONS if each not in (build.NATIVE, "-shared", "-fPIC")]
    return kept_program([compiler, *options, *isa.options, "-static"], SOURCE)


@pytest.fixture(autouse=True)
def as_many_threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=CPUS, ids=name_of)
def theirs(request: pytest.FixtureRequest) -> Iterator[Kernels]:
    """The kernels of a CPU that is not here."""
    library = EmulatedLibrary([EMULATOR, "-cpu", "max", str(program(request.param))])
    yield Kernels(library)  # type: ignore[arg-type]
    library.close()


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_kernels(theirs: Kernels, part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but what multiplies bfloat16 at once, which rounds otherwise there. Of a difference of two products compilers
    round either one before it is taken, so what is rotated may differ by that."""
    assert ours is not None
    for kernels in (ours, theirs):
        monkeypatch.setattr(kernels, "has_dot", False)
    for number, (one, another) in enumerate(zip(part(theirs), part(ours), strict=True)):
        if part is rotations:
            step = torch.finfo(one.dtype).eps * another.abs().max()
            assert (one.double() - another.double()).abs().max() <= step, number
        else:
            assert torch.equal(one.view(torch.uint8), another.view(torch.uint8)), (part.__name__, number)


@pytest.mark.parametrize("rows", [DECODE_ROWS, DECODE_ROWS + PREFILL_ROWS], ids=["decode", "prefill"])
def test_attention_in_bfloat16(
    theirs: Kernels, rows: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against float64, with the dot product where it is there and without."""
    monkeypatch.setattr(attention, "native_kernels", lambda: theirs)
    scores = Scores(scaling=64**-0.5, sliding_window=37)
    for has_dot in {False, theirs.has_dot}:
        monkeypatch.setattr(theirs, "has_dot", has_dot)
        case = Case(rows, len(DECODE_ROWS), (8, 2, 64), dtype=torch.bfloat16)
        assert case.error(scores) < 2 * TOLERANCES[torch.bfloat16]


with_dot = pytest.mark.parametrize("theirs", WITH_DOT, indirect=True, ids=name_of)


def to_odd(exact: F64) -> F64:
    """The float that is nearer to 0, with its last bit set if the number is between two of them."""
    near = exact.astype(np.float32)
    near = np.where(np.abs(near) > np.abs(exact), np.nextafter(near, np.float32(0)), near)
    return (near.view(np.uint32) | (near != exact)).view(np.float32).astype(np.float64)


def sums_of_arm(x: F64, weight: F64) -> F64:
    """`[rows, outputs]` of `[rows, inputs]` and `[outputs, inputs]`, pair after pair: Arm ARM DDI 0487, BFDotAdd. In
    float64 the sums that it rounds are exact, of numbers that are as near to each other as those of `grid`."""
    total = np.zeros((len(x), len(weight)))
    for k in range(0, x.shape[1], 2):
        products = x[:, None, k : k + 2] * weight[None, :, k : k + 2]
        total = to_odd(total + to_odd(products.sum(axis=2)))
    return total


def grid(*shape: int) -> torch.Tensor:
    """Numbers of 8 bits from -16 to 16."""
    generator = torch.Generator().manual_seed(shape[0])
    whole = torch.randint(-128, 128, shape, generator=generator)
    return (whole * 2.0 ** torch.randint(-11, -2, shape, generator=generator)).bfloat16()


@with_dot
@pytest.mark.parametrize("inputs", [64, 66])
def test_products_in_bfloat16_are_those_of_the_architecture(theirs: Kernels, inputs: int) -> None:
    """Bit for bit, so in one order of the inputs, and a row's whatever the others are: few rows and many, and even and
    odd numbers of them, take other instructions, and threads have parts of their own. 325 columns are ten tiles and a
    part of one."""
    weight, bias, x = grid(325, inputs), grid(1, 325)[0], grid(41, inputs)
    sums = sums_of_arm(x.double().numpy(), weight.double().numpy())
    expected = (torch.from_numpy(sums).float() + bias.float()).bfloat16()
    packed = PackedWeight(weight, bias)
    for number, rows in enumerate((1, 2, 3, 4, 5, 6, 7, 8, 9, 41)):
        torch.set_num_threads(1 + number % 3)
        assert torch.equal(theirs.linear(x[-rows:].contiguous(), packed.call), expected[-rows:]), rows


@with_dot
def test_products_of_heads_in_bfloat16(theirs: Kernels) -> None:
    heads, inputs, outputs = 3, 32, 64
    weight, x = grid(heads * outputs, inputs), grid(5, heads, inputs)
    packed, out = PackedWeight(weight), torch.empty(5, heads, outputs).bfloat16()
    theirs.linear_heads(x, packed.call, out)
    for head in range(heads):
        of_head = weight[head * outputs : (head + 1) * outputs]
        sums = sums_of_arm(x[:, head].double().numpy(), of_head.double().numpy())
        assert torch.equal(out[:, head], torch.from_numpy(sums).bfloat16())


@with_dot
@pytest.mark.parametrize(
    "test",
    [
        test_native_dot.test_a_row_does_not_depend_on_the_others,
        test_native_dot.test_a_chunk_does_not_change_its_queries,
        test_native_dot.test_a_short_chunk_does_not_depend_on_the_rows_before_it,
    ],
)
def test_company_does_not_matter(
    theirs: Kernels, test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Y2."""
    monkeypatch.setattr(test_native_dot, "kernels", theirs)
    test()


@with_dot
@pytest.mark.parametrize("family", ["qwen3", "phi3"])
def test_all_layers_in_one_call(
    theirs: Kernels, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Y2: as exact as the model itself; prompts, decode rows, and drafts."""
    for user in USERS:
        monkeypatch.setattr(user, "native_kernels", lambda: theirs)
    test_native_dot.test_fused_decoder_is_as_exact_as_the_model_itself(family, tmp_path)
