"""Kernels compiled for CPUs that are not here, run by an emulator: the same numbers as here, bit for bit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.downloads import CACHE
from tests.worker_svc.runner.cpu.emulated_kernels import EmulatedLibrary
from tests.worker_svc.runner.cpu.kernel_parts import PARTS, Part, rotations
from tests.worker_svc.runner.test_paged_attention import DECODE_ROWS, PREFILL_ROWS, TOLERANCES, Case
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.torch_attention import Scores
from worker_svc.runner.cpu.native import build
from worker_svc.runner.cpu.native.kernels import Kernels, load_kernels
from worker_svc.runner.cpu.shipped.isas import ISAS, Isa

EMULATOR = "qemu-aarch64-static"
COMPILERS = ("aarch64-linux-gnu-g++", "aarch64-linux-gnu-g++-12")
SOURCE = Path(__file__).with_name("calls.cpp")
CPUS = [isa for isa in ISAS if isa.machine == "aarch64"]
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


def program(isa: Isa) -> Path:
    """calls.cpp as built for that CPU, and kept between runs: that takes half a minute."""
    assert compiler is not None
    options = [each for each in build.OPTIONS if each not in (build.NATIVE, "-shared", "-fPIC")]
    command = [compiler, *options, *isa.options, "-static", f"-I{build.SOURCE.parent}", str(SOURCE)]
    built = CACHE / "kernels" / f"{isa.name}-{build.build_key(compiler, SOURCE.read_text(), *command)}"
    built.parent.mkdir(parents=True, exist_ok=True)
    with build.one_builder(built):
        if not built.is_file():
            build.run([*command, "-o", str(built.with_suffix(".new"))])
            built.with_suffix(".new").replace(built)
    return built


@pytest.fixture(scope="module", params=CPUS, ids=lambda isa: isa.name)
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
