"""Checkpoints whose whole numbers stay such: served by the kernels, with the logits of the numbers they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.worker_svc.runner.cpu.test_kept_linear import all_logits, needs_bfloat16, needs_kernels
from tests.worker_svc.runner.reference import make_runner
from tests.worker_svc.weights.checkpoints import Encode, make_twins
from tests.worker_svc.weights.test_int_words import AWQ, awq, gptq, gptq_settings
from worker_svc.runner.cpu.decoder import FusedDecoder
from worker_svc.runner.cpu.packed_linear import relative_error
from worker_svc.runner.model.loading import load_model

TOKENS = [3, 17, 90, 4, 55, 2, 31, 31, 8]
SCHEMES: dict[str, tuple[Encode, dict[str, Any]]] = {
    "awq": (awq(32), AWQ),
    "gptq of 4 bits": (gptq(4, 64, less_one=True), gptq_settings(4, 64)),
    "gptq of 8 bits": (gptq(8, 32, less_one=True), gptq_settings(8, 32)),
}
"""All have zero points: offsets, which weights that are rounded at load have not."""


@needs_kernels
@needs_bfloat16
@pytest.mark.parametrize("scheme", SCHEMES)
def test_kept_checkpoints_give_the_logits_of_their_numbers(scheme: str, tmp_path: Path) -> None:
    """In bfloat16, all layers in one call."""
    encode, settings = SCHEMES[scheme]
    twins = make_twins(tmp_path, "llama", encode, settings)
    runner = make_runner(twins.quantised, dtype="bfloat16")
    assert runner.model.num_kept == 2 * 7
    assert any(isinstance(module, FusedDecoder) for module in runner.model.module.modules())
    plain = load_model(twins.plain, dtype="float32").module
    plain.set_attn_implementation("eager")
    with torch.inference_mode():
        expected = plain(input_ids=torch.tensor([TOKENS]), use_cache=False).logits[0]
    assert relative_error(all_logits(runner, TOKENS), expected) < 0.03
