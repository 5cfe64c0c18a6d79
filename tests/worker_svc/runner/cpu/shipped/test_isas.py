"""The kinds of CPU that kernels are compiled for are those that the sources distinguish."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from worker_svc.runner.cpu.flags import cpu_flags
from worker_svc.runner.cpu.native import build
from worker_svc.runner.cpu.shipped import make
from worker_svc.runner.cpu.shipped.isas import FLAG_OF_MACRO, ISAS, V3_FLAGS, V4_FLAGS, Isa, runnable, unused

MACRO = re.compile(r"#\s*(?:el)?if.*?(__(?:AVX|SSE|F16C|FMA|AMX|ARM|BMI|VNNI)\w*)", re.ASCII)


def names(machine: str, flags: set[str] | frozenset[str]) -> list[str]:
    return [isa.name for isa in runnable(machine, flags)]


def test_all_that_the_sources_distinguish_is_known() -> None:
    """Who adds a macro to a kernel adds what it needs here, and an entry to `ISAS` where it pays."""
    files = [path for path in Path(build.__file__).parent.rglob("*") if path.suffix in {".h", ".cpp"}]
    sources = "\n".join(path.read_text() for path in files)
    assert set(MACRO.findall(sources)) == set(FLAG_OF_MACRO)


@pytest.mark.parametrize("isa", ISAS, ids=lambda i: i.name)
def test_a_library_uses_exactly_what_its_cpu_must_have(isa: Isa) -> None:
    """A compiler option that brings more than the flags say would end the process on a CPU without it."""
    try:
        compiler = make.compiler_for(isa.machine)
    except build.BuildError as error:
        pytest.skip(str(error))
    defined = build.run([compiler, *isa.options, "-dM", "-E", "-x", "c++", "/dev/null"])
    macros = set(re.findall(r"#define (\w+) 1\b", defined))
    assert {flag for macro, flag in FLAG_OF_MACRO.items() if macro in macros} == isa.flags & set(
        FLAG_OF_MACRO.values()
    )


def test_the_best_that_a_cpu_runs_comes_first() -> None:
    cascade_lake = V4_FLAGS | {"avx512_vnni"}
    zen4 = cascade_lake | {"avx512_bf16", "sse4_2"}
    assert names("x86_64", zen4)[0] == "x86-64-v4-vnni-bf16"
    assert names("x86_64", cascade_lake)[0] == "x86-64-v4-vnni"
    assert names("x86_64", V4_FLAGS)[0] == "x86-64-v4"
    assert names("x86_64", V4_FLAGS - {"avx512vl"})[0] == "x86-64-v3"
    assert names("x86_64", V3_FLAGS - {"movbe"}) == ["x86-64"]
    assert names("aarch64", {"asimd"}) == ["armv8-a"]
    neoverse_n1 = {"asimd", "asimddp", "atomics", "asimdrdm"}
    neoverse_v1 = neoverse_n1 | {"bf16", "i8mm", "sve", "svebf16"}
    assert names("aarch64", neoverse_n1) == ["armv8.2-a-dotprod", "armv8-a"]
    assert names("aarch64", neoverse_v1)[0] == "armv8.2-a-bf16-i8mm"
    assert names("aarch64", neoverse_v1 - {"i8mm"})[0] == "armv8.2-a-dotprod"
    assert names("riscv64", zen4) == []


def test_a_library_is_as_good_as_a_compiled_one_where_it_uses_all_that_the_sources_can() -> None:
    best, *_, plain = runnable("x86_64", V4_FLAGS | {"avx512_vnni", "avx512_bf16", "amx_bf16"})
    assert unused(best, V4_FLAGS | {"avx512_vnni", "avx512_bf16", "amx_bf16", "avx512_fp16"}) == []
    assert unused(plain, V3_FLAGS) == ["avx2", "f16c"]
    graviton3 = {"asimd", "asimddp", "atomics", "asimdrdm", "bf16", "i8mm", "sve"}
    best, with_dot, _ = runnable("aarch64", graviton3)
    assert (unused(best, graviton3), unused(with_dot, graviton3)) == ([], ["bf16", "i8mm"])
    assert unused(None, V3_FLAGS) == ["avx2", "f16c"]


def test_this_cpu_runs_one_wherever_there_is_any() -> None:
    if any(isa.machine == platform.machine() for isa in ISAS):
        assert cpu_flags()
        assert runnable(platform.machine(), cpu_flags())
