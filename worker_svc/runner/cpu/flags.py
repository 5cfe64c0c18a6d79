"""What instructions this CPU has."""

from __future__ import annotations

from pathlib import Path

BFLOAT16_CPU_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}
"""Products of bfloat16, of x86 and of ARM."""
MATRIX_UNITS_FLAG = "amx_bf16"


def cpu_flags() -> set[str]:
    """Instruction set extensions by their Linux names; empty where there is no /proc/cpuinfo."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    told = (
        line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))
    )  # x86, ARM
    return set(next(told, ()))
