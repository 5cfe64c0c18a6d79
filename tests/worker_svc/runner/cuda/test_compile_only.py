"""Kernels that are compiled for an image are those that a start finds there, by Triton's own names for them."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from signalbox.errors import StartupError
from worker_svc import compile_only as module
from worker_svc.compile_only import Filled, compile_only, filled_of
from worker_svc.config import WorkerSettings
from worker_svc.core.batch import WarmUp

triton = pytest.importorskip("triton")

from triton.runtime.driver import driver  # noqa: E402
from triton.runtime.jit import JITFunction  # noqa: E402

from tests.worker_svc.runner.cuda.launches import AbsentGPU, launching  # noqa: E402
from worker_svc.runner.triton.attention import INTERPRETED  # noqa: E402
from worker_svc.runner.triton.launch import launch_error, write_one  # noqa: E402
from worker_svc.runner.triton.write import TritonKernels, norm_kernel  # noqa: E402
from worker_svc.runner.warming.compiles import KernelCompiles  # noqa: E402

ModelDir = Callable[[str], Path]
pytestmark = pytest.mark.skipif(INTERPRETED, reason="kernels are interpreted in this process, not compiled")


def start(monkeypatch: pytest.MonkeyPatch) -> KernelCompiles:
    """What a start does of two kernels, for a GPU that is not here: nothing is run. Nothing is left of starts before in
    the process."""
    specialise = JITFunction.run
    with monkeypatch.context() as patched:
        patched.setattr(driver, "_active", AbsentGPU(90))
        patched.setattr(triton.knobs.compilation, "listener", None)
        for name in ("jit_cache_hook", "jit_post_compile_hook"):
            patched.setattr(triton.knobs.runtime, name, None)
        for kernel in (write_one, norm_kernel):
            patched.setattr(kernel, "device_caches", defaultdict(kernel.create_binder))
        compiles = KernelCompiles(WarmUp())
        compiles.listen()
        with launching(lambda kernel, *args, **options: specialise(kernel, *args, warmup=True, **options)):
            launch_error.__wrapped__(torch.device("cpu"))
            TritonKernels().rms_norm(torch.zeros(3, 64), torch.zeros(64), 1e-6, 0.0, rounds=True)
    return compiles


def test_a_start_finds_what_was_compiled_at_the_same_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """WU5."""
    monkeypatch.setenv(module.CACHE, "")  # restored behind the test
    made = []
    monkeypatch.setattr(module, "make_runner", lambda settings: made.append(start(monkeypatch)))
    shipped = tmp_path / "shipped"
    filled = compile_only(WorkerSettings(device="cuda"), shipped)
    assert filled == filled_of(shipped) and filled.num_kernels == 2 and filled.num_bytes > 4000
    assert [(each.num_kernels, each.num_from_disk) for each in made] == [(2, 0)]
    served = start(monkeypatch)
    assert (served.num_kernels, served.num_from_disk) == (2, 2)
    assert filled_of(shipped) == filled, "nothing was compiled again"
    moved = shutil.move(shipped, tmp_path / "moved")
    monkeypatch.setenv(module.CACHE, str(moved))
    assert start(monkeypatch).num_from_disk == 0, "Triton keeps whole paths in its cache"


def test_without_a_gpu_it_says_so(
    model_dir: ModelDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    monkeypatch.setenv(module.CACHE, "")
    settings = WorkerSettings(model=model_dir("tiny-qwen3"), device="cuda")
    with pytest.raises(StartupError, match="cuda"):
        compile_only(settings, tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartupError, match=r"--compile-only .*file/kernels: Not a directory"):
        compile_only(WorkerSettings(device="cuda"), tmp_path / "file" / "kernels")


def test_a_start_without_triton_has_nothing_to_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.CACHE, "")
    monkeypatch.setattr(module, "make_runner", lambda settings: None)
    with pytest.raises(StartupError, match="no kernel was compiled"):
        compile_only(WorkerSettings(device="cuda"), tmp_path)
    assert filled_of(tmp_path) == Filled(0, 0)


@pytest.mark.parametrize("more", [{}, {"device": "cuda", "tensor_parallel": 2}])
def test_it_is_for_one_gpu(more: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--compile-only is for --device cuda"):
        WorkerSettings(compile_only=tmp_path, **more)  # type: ignore[arg-type]
