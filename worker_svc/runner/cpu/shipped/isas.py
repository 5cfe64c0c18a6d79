"""The kinds of CPU that kernels are compiled for, and which of them this CPU is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

V3_FLAGS = frozenset({"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})
V4_FLAGS = V3_FLAGS | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
DOTPROD_FLAGS = frozenset({"asimddp", "atomics", "asimdrdm"})
FLAG_OF_MACRO = {
    "__AVX2__": "avx2",
    "__F16C__": "f16c",
    "__AVX512F__": "avx512f",
    "__AVX512BW__": "avx512bw",
    "__AVX512VNNI__": "avx512_vnni",
    "__AVX512BF16__": "avx512_bf16",
    "__ARM_FEATURE_DOTPROD": "asimddp",
    "__ARM_FEATURE_BF16_VECTOR_ARITHMETIC": "bf16",
    "__ARM_FEATURE_MATMUL_INT8": "i8mm",
}
"""What the kernels' sources distinguish, and Linux's names for it."""


@dataclass(frozen=True)
class Isa:
    """A kind of CPU."""

    name: str
    machine: str
    """The kind of machine, as `platform.machine()` says."""
    options: tuple[str, ...]
    """What the compiler is told."""
    flags: frozenset[str]
    """What a CPU must have to run it, by Linux's names."""


ISAS = (
    Isa(
        "x86-64-v4-vnni-bf16",
        "x86_64",
        ("-march=x86-64-v4", "-mavx512vnni", "-mavx512bf16"),
        V4_FLAGS | {"avx512_vnni", "avx512_bf16"},
    ),
    Isa("x86-64-v4-vnni", "x86_64", ("-march=x86-64-v4", "-mavx512vnni"), V4_FLAGS | {"avx512_vnni"}),
    Isa("x86-64-v4", "x86_64", ("-march=x86-64-v4",), V4_FLAGS),
    Isa("x86-64-v3", "x86_64", ("-march=x86-64-v3",), V3_FLAGS),
    Isa("x86-64", "x86_64", ("-march=x86-64",), frozenset()),
    Isa(
        "armv8.2-a-bf16-i8mm",
        "aarch64",
        ("-march=armv8.2-a+dotprod+bf16+i8mm",),
        DOTPROD_FLAGS | {"bf16", "i8mm"},
    ),
    Isa("armv8.2-a-dotprod", "aarch64", ("-march=armv8.2-a+dotprod",), DOTPROD_FLAGS),
    Isa("armv8-a", "aarch64", ("-march=armv8-a",), frozenset()),
)
"""The best of each machine first. The first one uses matrix units (AMX), too, where it finds them.
ARM's bfloat16 and 8-bit matrices are asked for by themselves: cores have them (Neoverse V1) that are not all of 8.6.
Nothing is there for what the sources do not use (SVE, SME)."""


def runnable(machine: str, flags: Collection[str]) -> list[Isa]:
    """The kinds that a CPU with these flags runs, the best first."""
    return [isa for isa in ISAS if isa.machine == machine and isa.flags.issubset(flags)]


def unused(isa: Isa | None, flags: Collection[str]) -> list[str]:
    """What the CPU has, the sources can use, and this library does not: a library compiled here would be better.

    None: there is no library.
    """
    used = frozenset() if isa is None else isa.flags
    return [flag for flag in FLAG_OF_MACRO.values() if flag in flags and flag not in used]
