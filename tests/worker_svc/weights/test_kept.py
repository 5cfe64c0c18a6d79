"""Checkpoints whose whole numbers stay such: served by the kernels, with the logits of the numbers they stand for."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.worker_svc.runner.cpu.test_kept_linear import all_logits, needs_bfloat16, needs_kernels
from tests.worker_svc.runner.reference import make_runner
from tests.worker_svc.weights.checkpoints import Encode, make_twins
from tests.worker_svc.weights.test_compressed import FLOAT4, INT4, INT8, NVFP4, ZEROS, compressed, settings_of
from tests.worker_svc.weights.test_int_words import AWQ, awq, gptq, gptq_settings
from worker_svc.runner.cpu.decoder import FusedDecoder
from worker_svc.runner.cpu.packed_linear import relative_error
from worker_svc.runner.model.loading import load_model

TOKENS = [3, 17, 90, 4, 55, 2, 31, 31, 8]
Made = tuple[Encode, dict[str, Any]]


def of_compressed_tensors(form: str, weights: dict[str, Any]) -> Callable[[], Made]:
    """By its own code, which skips the test that asks where it cannot be had."""
    return lambda: (compressed(form, weights), settings_of(form, weights))


SCHEMES: dict[str, tuple[Callable[[], Made], str]] = {
    "awq": (lambda: (awq(32), AWQ), "int4/32+"),
    "gptq of 4 bits": (lambda: (gptq(4, 64, less_one=True), gptq_settings(4, 64)), "int4/64+"),
    "gptq of 8 bits": (lambda: (gptq(8, 32, less_one=True), gptq_settings(8, 32)), "int8/32+"),
    "W4A16": (of_compressed_tensors("pack-quantized", INT4), "int4/32"),
    "W4A16 with zeros": (of_compressed_tensors("pack-quantized", ZEROS), "int4/32+"),
    "W8A16": (of_compressed_tensors("pack-quantized", INT8), "int8/128, int8/256"),
    "W8A8": (of_compressed_tensors("int-quantized", INT8), "int8/128, int8/256"),
    "MXFP4": (of_compressed_tensors("mxfp4-pack-quantized", FLOAT4), "e2m1/32"),
    "NVFP4": (of_compressed_tensors("nvfp4-pack-quantized", NVFP4), "e2m1/16"),
}
"""How weights are stored, what config.json says of it, and what a worker tells; `+`: with zero points, which are
offsets that weights rounded at load have not. Of 8 bits a group is all inputs of an output, 128 or 256."""


@needs_kernels
@needs_bfloat16
@pytest.mark.parametrize("scheme", SCHEMES)
def test_kept_checkpoints_give_the_logits_of_their_numbers(scheme: str, tmp_path: Path) -> None:
    """In bfloat16, all layers in one call."""
    make, told = SCHEMES[scheme]
    encode, settings = make()
    twins = make_twins(tmp_path, "llama", encode, settings)
    runner = make_runner(twins.quantised, dtype="bfloat16")
    assert runner.model.num_kept == 2 * 7
    assert re.sub(r"\d+ (?=int|e2m1)", "", runner.model.kept) == told
    assert any(isinstance(module, FusedDecoder) for module in runner.model.module.modules())
    plain = load_model(twins.plain, dtype="float32").module
    plain.set_attn_implementation("eager")
    with torch.inference_mode():
        expected = plain(input_ids=torch.tensor([TOKENS]), use_cache=False).logits[0]
    assert relative_error(all_logits(runner, TOKENS), expected) < 0.03
