"""What a GPU is told when it is opened, and what is refused on it by name."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from signalbox.errors import StartupError
from signalbox.runtime import config
from tools.make_random_model import make_model
from worker_svc.config import WorkerSettings
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.loading import choose_device, gpu_dtype
from worker_svc.runner_factory import make_runner


@pytest.fixture
def products() -> Iterator[object]:
    """torch's settings of products on a GPU, as they are by default."""
    settings = torch.backends.cuda.matmul
    names = ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction")
    before = [getattr(settings, name) for name in names]
    try:
        for name in names:
            setattr(settings, name, True)
        yield settings
    finally:
        for name, value in zip(names, before, strict=True):
            setattr(settings, name, value)


def test_split_products_are_added_up_in_float32(products: object, monkeypatch: pytest.MonkeyPatch) -> None:
    choose_device("cpu")
    assert torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    assert not torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction


@pytest.mark.parametrize(
    ("dtype", "capability", "chosen"),
    [
        ("auto", (9, 0), torch.bfloat16),
        ("bfloat16", (8, 0), torch.bfloat16),
        ("float32", (12, 0), torch.float32),
        ("float32", (7, 5), torch.float32),
    ],
)
def test_types_of_gpus(
    dtype: str, capability: tuple[int, int], chosen: torch.dtype, caplog: pytest.LogCaptureFixture
) -> None:
    assert gpu_dtype(dtype, "a GPU", capability) == chosen
    assert not caplog.records


def test_a_gpu_without_bfloat16_is_named(caplog: pytest.LogCaptureFixture) -> None:
    sentence = r"^Tesla T4 \(compute capability 7\.5\) has no bfloat16.*: set --dtype float32, .*\.$"
    with pytest.raises(ModelLoadError, match=sentence):
        gpu_dtype("bfloat16", "Tesla T4", (7, 5))
    with caplog.at_level(logging.WARNING):
        assert gpu_dtype("auto", "Tesla T4", (7, 5)) == torch.float32
    (record,) = caplog.records
    assert "Tesla T4 (compute capability 7.5) has no bfloat16" in record.message
    assert "served in float32" in record.message


@pytest.mark.parametrize("name", ["float16", "half"])
def test_float16_is_refused_with_what_to_set(name: str) -> None:
    with pytest.raises(StartupError, match=r"--dtype .*float16 is not served, .*: set bfloat16, or float32"):
        config.load(WorkerSettings, ["--dtype", name])


@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPUs are there")
def test_several_gpus_are_called_untested(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = make_model("tiny-llama", tmp_path, seed=1)
    settings = WorkerSettings(model=model, device="cuda", tensor_parallel=2)
    with caplog.at_level(logging.WARNING), pytest.raises(StartupError, match="torch sees 0"):
        make_runner(settings)
    assert [record.message for record in caplog.records if "untested" in record.message] == [
        "2 GPUs: untested, as no machine with several has run this"
    ]
