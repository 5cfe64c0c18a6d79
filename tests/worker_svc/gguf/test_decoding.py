"""Blocks of GGUF against llama.cpp's own Python package: what its quantisers write, and random bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.worker_svc.weights.references import gguf_quants
from worker_svc.gguf.blocks import STORAGES
from worker_svc.gguf.decoding import PLAIN, decode
from worker_svc.runner.errors import ModelLoadError
from worker_svc.weights.quantised import QuantisedMatrix

ROWS, COLUMNS = 6, 512
BLOCKS = {
    storage.name: (number, storage) for number, storage in STORAGES.items() if storage.name not in PLAIN
}
TWO = ("Q4_1", "Q5_1", "Q4_K", "Q5_K")
HALVES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,)} | dict.fromkeys(TWO, (0, 2))
"""Where in a block numbers of 16 bits are; else at its beginning."""


def random_blocks(name: str) -> Any:
    """Any bytes, but for the scales of 16 bits, which are numbers of about 0.01."""
    _, storage = BLOCKS[name]
    random = np.random.default_rng(1)
    count = ROWS * COLUMNS // storage.block_elements
    blocks = random.integers(0, 256, (count, storage.block_bytes), dtype=np.uint8)
    for start in HALVES.get(name, (0,)):
        scales = (random.standard_normal((count, 1)) * 0.01).astype(np.float16)
        blocks[:, start : start + 2] = scales.view(np.uint8)
    return blocks.reshape(ROWS, -1)


def decoded(name: str, stored: Any) -> Any:
    made = decode("w", torch.from_numpy(stored.reshape(-1).copy()), BLOCKS[name][1], (ROWS, COLUMNS))
    assert isinstance(made, QuantisedMatrix)
    assert made.shape == (ROWS, COLUMNS)
    low, high = (-8, 7) if made.bits == 4 else (-128, 127)
    assert low <= int(made.codes.min()) <= int(made.codes.max()) <= high
    return made.dequantise().numpy()


@pytest.mark.parametrize("name", BLOCKS)
def test_random_blocks_are_the_numbers_that_llama_cpp_reads(name: str) -> None:
    quants = gguf_quants()
    stored = random_blocks(name)
    expected = quants.dequantize(stored, quants.GGMLQuantizationType(BLOCKS[name][0]))
    np.testing.assert_allclose(decoded(name, stored), expected, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_what_llama_cpp_writes_is_near_the_numbers(name: str) -> None:
    quants = gguf_quants()
    numbers = np.random.default_rng(2).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    stored = quants.quantize(numbers, quants.GGMLQuantizationType(BLOCKS[name][0]))
    assert np.abs(decoded(name, stored) - numbers).max() < {"8": 0.03, "5": 0.25, "4": 0.5}[name[1]]


@pytest.mark.parametrize("name", BLOCKS)
def test_a_scale_that_is_no_number_is_named(name: str) -> None:
    stored = random_blocks(name)
    start = HALVES.get(name, (0,))[0]
    stored.reshape(-1, BLOCKS[name][1].block_bytes)[3, start : start + 2] = 0xFF
    with pytest.raises(ModelLoadError, match="w has a scale that is not finite"):
        decoded(name, stored)
