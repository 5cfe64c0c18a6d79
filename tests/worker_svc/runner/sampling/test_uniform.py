"""The random numbers: known answers, and that a number depends on its key alone and on all of it."""

from __future__ import annotations

import numpy as np
import pytest

from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.sampling.uniform import Purpose, philox4x32, uniforms

# From the file kat_vectors of the authors' Random123 library.
KNOWN_ANSWERS = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_known_answers(counter: list[int], key: list[int], expected: list[int]) -> None:
    words = philox4x32(np.array([counter] * 3, np.uint64), np.array([key] * 3, np.uint64))
    assert words.tolist() == [expected] * 3


def draw(seed: int = 1 << 63, choice_index: int = 0, position: int = 5) -> float:
    seeds = np.array([seed], np.uint64)
    return float(uniforms(seeds, [choice_index], [position], Purpose.SAMPLE)[0])


def test_the_kernels_numbers_are_the_same(kernels: Kernels) -> None:
    random = np.random.default_rng(5)
    seeds = random.integers(0, 1 << 64, 1000, np.uint64)
    choices, positions = random.integers(0, 1 << 32, (2, 1000), np.uint32)
    numbers = kernels.uniforms(seeds, choices, positions.view(np.int32), Purpose.SAMPLE)
    assert numbers.tolist() == uniforms(seeds, choices, positions, Purpose.SAMPLE).tolist()


def test_every_part_of_the_key_counts() -> None:
    """D1."""
    numbers = [
        draw(),
        draw(seed=(1 << 63) + 1),
        draw(seed=0),
        draw(choice_index=1),
        draw(choice_index=1 << 31),
        draw(position=6),
        draw(choice_index=5, position=0),
    ]
    assert len(set(numbers)) == len(numbers)


def test_number_does_not_depend_on_its_neighbours() -> None:
    seeds = np.arange(20, dtype=np.uint64) << np.uint64(40)
    together = uniforms(seeds, np.arange(20), np.arange(20)[::-1], Purpose.SAMPLE)
    alone = [draw(seed=i << 40, choice_index=i, position=19 - i) for i in range(20)]
    assert together.tolist() == alone


def test_numbers_are_uniform() -> None:
    count, bins = 100_000, 100
    numbers = uniforms(np.full(count, 3, np.uint64), np.zeros(count), np.arange(count), Purpose.SAMPLE)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    observed = np.histogram(numbers, bins, (0, 1))[0]
    chi_square = ((observed - count / bins) ** 2 / (count / bins)).sum()
    assert chi_square < 160, "1 in 10,000 for 99 degrees of freedom"
