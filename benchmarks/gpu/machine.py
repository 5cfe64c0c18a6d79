"""The first lines of a report: versions, driver, card, measured bandwidth, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from benchmarks.gpu.context import Context
from benchmarks.gpu.speed.timer import device_ms

ROOT = Path(__file__).resolve().parents[2]
GPU_BYTES, CPU_BYTES = 1 << 30, 1 << 24
"""Size of the tensor that is copied and read."""


def run(context: Context) -> None:
    """Writes the line of the machine."""
    device = torch.device(context.order.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(f"torch {torch.__version__} finds no CUDA device: is it a build with CUDA?")
    copied, read = bandwidths(device)
    context.line(
        "machine",
        card=torch.cuda.get_device_name(device) if device.type == "cuda" else "no GPU",
        memory_gb=round(torch.cuda.mem_get_info(device)[1] / 1e9, 1) if device.type == "cuda" else None,
        driver=driver() if device.type == "cuda" else None,
        cuda=torch.version.cuda,
        python=platform.python_version(),
        torch=torch.__version__,
        triton=version_of("triton"),
        transformers=version_of("transformers"),
        cores=os.cpu_count(),
        copy_tb_s=round(copied / 1e12, 3),
        read_tb_s=round(read / 1e12, 3),
        commit=commit(),
    )


def bandwidths(device: torch.device) -> tuple[float, float]:
    """Bytes per second of the device's memory: read and written by a copy, and read by a reduction."""
    size = GPU_BYTES if device.type == "cuda" else CPU_BYTES
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    numbers = source.view(torch.int64)
    copy_s = device_ms(device, lambda: target.copy_(source), 5) / 1e3
    read_s = device_ms(device, numbers.amax, 5) / 1e3
    return 2 * size / copy_s, size / read_s


def version_of(package: str) -> str:
    """What is installed; `none`."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def driver() -> str:
    """The driver's version, as nvidia-smi says; `unknown` without it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.splitlines()[0].strip()


def commit() -> str:
    """The checkout's commit, with `+` if files differ from it; `unknown` where git or its folder are missing."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD").strip()
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no").strip() else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
