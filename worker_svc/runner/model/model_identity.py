"""What the results of a loaded model depend on, as a worker tells it in its hello."""

from __future__ import annotations

import hashlib
import platform
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from signalbox import __version__
from signalbox.protocol.model_identity import ModelIdentity
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.cpu.flags import cpu_flags
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.weights.digest import digest_of

NUMBER_FLAGS = frozenset(
    {
        *("fma", "avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
        *("amx_bf16", "amx_int8", "amx_fp16"),
        *("asimddp", "asimdhp", "bf16", "i8mm", "sve", "sve2", "svebf16", "svei8mm"),  # of ARM
    }
)
"""Instructions by which libraries choose routines, and with them the order of sums."""
OWN = "worker_svc."


def identify(
    model_dir: Path,
    module: Any,
    dtype: torch.dtype,
    device: torch.device,
    choices: str = "",
    attention: str = "",
) -> ModelIdentity:
    """The identity of a model as it is served: `module` has its modules swapped for faster ones, where that was done.
    `choices`: which layers are whole numbers, and factors of a rope. `attention`: whose kernels read the cache."""
    form = str(dtype).removeprefix("torch.") + (f", {choices}" if choices else "")
    return ModelIdentity(digest_of(model_dir), form, number_class(module, device, attention))


def number_class(module: Any, device: torch.device, attention: str = "") -> str:
    """Equal on two workers only if they have the same bits for the same step. Nothing that is measured is in it: what
    is chosen by measurement, the number of threads, changes no bit (I10)."""
    release = f"signalbox {__version__}, torch {torch.__version__.partition('+')[0]}"
    return f"{_machine(device)}, {release}, modules {_swapped(module, attention)}"


def _machine(device: torch.device) -> str:
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return f"cuda sm_{major}{minor}"
    flags = " ".join(sorted(NUMBER_FLAGS & cpu_flags()))
    return f"cpu {platform.machine()} {flags or 'baseline'} {_kernels(native_kernels())}"


def _kernels(native: Kernels | None) -> str:
    """The kind of kernels, as far as their products of bfloat16 round otherwise. Whose dot products they are, ARM's or
    those of x86, the machine says."""
    if native is None:
        return "torch"
    if native.has_matrix_units:
        return "native on matrix units"
    return "native by dot products" if native.has_dot else "native"


def _swapped(module: Any, attention: str) -> str:
    """Which modules are ours, in 8 characters: a fused layer rounds elsewhere than the one that it stands for."""
    kinds = (type(each) for each in module.modules())
    counts = Counter(kind.__qualname__ for kind in kinds if kind.__module__.startswith(OWN))
    if not counts:
        return f"plain {attention}".strip()
    return hashlib.sha256(repr((attention, sorted(counts.items()))).encode()).hexdigest()[:8]
