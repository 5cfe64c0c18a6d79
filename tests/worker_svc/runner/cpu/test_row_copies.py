"""Rows that are copied from cache to cache, by the compiled kernels and by numpy."""

from __future__ import annotations

import numpy as np
import pytest

from worker_svc.runner.cpu.native.library import load_library
from worker_svc.runner.cpu.native.row_copies import copier_here, native_copier
from worker_svc.transfer.row_copies import CopierOf, Rows, numpy_copier, runs_of

NUM_SOURCE, NUM_TARGET = 40, 50
SIZES = ((6144,), (1, 48, 64, 100), (4096, 65, 10_000), ())
"""Bytes of a row in each strip: of a model; short ones; those that begin anywhere; none."""


@pytest.fixture(params=["numpy", "native"])
def copier_of(request: pytest.FixtureRequest) -> CopierOf:
    library = load_library() if request.param == "native" else None
    if request.param == "native" and library is None:
        pytest.skip("there is no C++ compiler")
    return numpy_copier if library is None else native_copier(library)


def strips(sizes: tuple[int, ...], num_blocks: int, seed: int) -> list[Rows]:
    draw = np.random.default_rng(seed)
    return [draw.integers(0, 256, (num_blocks, size), dtype=np.uint8) for size in sizes]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", ["scattered", "runs", "one", "none", "all", "repeated"])
def test_every_row_goes_where_it_is_told_and_nothing_else_changes(
    copier_of: CopierOf, sizes: tuple[int, ...], kind: str
) -> None:
    draw = np.random.default_rng(len(kind))
    source_blocks, target_blocks = {
        "scattered": (draw.permutation(NUM_SOURCE)[:20], draw.permutation(NUM_TARGET)[:20]),
        "runs": (np.r_[3:9, 20:25], np.r_[30:36, 1:6]),
        "one": (np.array([NUM_SOURCE - 1]), np.array([NUM_TARGET - 1])),
        "none": (np.zeros(0, np.int64), np.zeros(0, np.int64)),
        "all": (draw.permutation(NUM_SOURCE), np.arange(NUM_SOURCE)),
        "repeated": (np.full(7, 5), draw.permutation(NUM_TARGET)[:7]),
    }[kind]
    sources, targets = strips(sizes, NUM_SOURCE, 1), strips(sizes, NUM_TARGET, 2)
    expected = [rows.copy() for rows in targets]
    for rows, source in zip(expected, sources, strict=True):
        rows[target_blocks] = source[source_blocks]
    copier_of(targets, sources)(target_blocks, source_blocks)
    for rows, right in zip(targets, expected, strict=True):
        np.testing.assert_array_equal(rows, right)


def test_strips_are_kept_in_memory_for_as_long_as_they_may_be_copied(copier_of: CopierOf) -> None:
    """Their addresses are all that the kernels have of them."""
    target = strips((6144,), NUM_TARGET, 2)
    copy = copier_of(target, strips((6144,), NUM_SOURCE, 1))
    noise = [np.full((NUM_SOURCE, 6144), number, np.uint8) for number in range(8)]
    copy(np.array([4]), np.array([9]))
    np.testing.assert_array_equal(target[0][4], strips((6144,), NUM_SOURCE, 1)[0][9])
    assert len(noise) == 8


def test_runs_are_those_at_both_ends() -> None:
    ids = np.array([3, 4, 5, 9, 10])
    assert list(runs_of(ids)) == [(0, 3), (3, 5)]
    assert list(runs_of(ids, np.array([7, 8, 1, 2, 3]))) == [(0, 2), (2, 3), (3, 5)]
    assert list(runs_of(np.zeros(0, np.int64))) == []


@pytest.mark.skipif(load_library() is None, reason="there is no C++ compiler")
def test_the_kernels_copy_where_they_can_be_had() -> None:
    assert copier_here() is not numpy_copier
