"""What a torch worker says that its results depend on: I7 and I10."""

from __future__ import annotations

import platform
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from signalbox.cli.ring.ring import DEMO_MODEL
from signalbox.protocol.model_identity import MAX_PART_BYTES
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.model import model_identity
from worker_svc.runner.model.kept_weights import Quantization
from worker_svc.runner.torch_runner import TorchRunner


@cache
def runner_of(dtype: str, quantization: Quantization = Quantization.AUTO) -> TorchRunner:
    return TorchRunner(
        DEMO_MODEL,
        served_model_name="demo",
        dtype=dtype,
        quantization=quantization,
        num_blocks=8,
        threads=2,
    )


def test_the_type_of_numbers_is_part_of_it_and_the_digest_stays() -> None:
    """I7."""
    rounded, full = runner_of("bfloat16").info.identity, runner_of("float32").info.identity
    assert rounded.weights == full.weights and rounded.key != full.key
    assert (rounded.form, full.form) == ("bfloat16", "float32")
    assert len(full.number_class.encode()) <= MAX_PART_BYTES and full.number_class.isprintable()


@pytest.mark.skipif(native_kernels() is None, reason="there is no compiler")
def test_rounded_weights_are_another_form() -> None:
    """I7."""
    plain, kept = runner_of("bfloat16").info.identity, runner_of("bfloat16", Quantization.INT8).info.identity
    assert plain.weights == kept.weights and plain.key != kept.key
    assert kept.form.startswith("bfloat16, ") and "int8/32" in kept.form


def class_on(machine: str, flags: str, has_dot: bool) -> str:
    """The class of numbers of a model without layers on such a CPU."""
    native = SimpleNamespace(has_dot=has_dot, has_matrix_units=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(platform, "machine", lambda: machine)
        patch.setattr(model_identity, "cpu_flags", lambda: set(flags.split()))
        patch.setattr(model_identity, "native_kernels", lambda: native)
        return model_identity.number_class(nn.Module(), torch.device("cpu"))


def test_kinds_of_products_are_classes_of_numbers() -> None:
    """I7: dot products of ARM round otherwise than those of AVX-512, and both otherwise than sums of floats. A CPU
    that has them may run a library that has not."""
    bf16 = "fp asimd atomics asimddp bf16 i8mm"
    classes = [
        class_on("aarch64", "fp asimd atomics asimddp", has_dot=False),
        class_on("aarch64", bf16, has_dot=False),
        class_on("aarch64", bf16, has_dot=True),
        class_on("aarch64", f"{bf16} sve svebf16", has_dot=True),
        class_on("x86_64", "fma avx2 avx512f avx512_bf16", has_dot=True),
        class_on("x86_64", "fma avx2 avx512f avx512_bf16", has_dot=False),
    ]
    assert len(set(classes)) == len(classes)
    assert classes[2].startswith("cpu aarch64 asimddp bf16 i8mm native by dot products, ")
    assert all(len(each.encode()) <= MAX_PART_BYTES for each in classes)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_threads_which_are_chosen_by_measurement_change_no_bit(dtype: str) -> None:
    """I10."""
    runner = runner_of(dtype)
    states = []
    before = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            states.append(runner._run_one_token().clone())
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*states)
