"""Collectives through shared memory are those over gloo (RK2): sums, parts side by side, the least number."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.split.over_memory import PART_BYTES, MemoryCommunicator, make_exchange_memory


@contextmanager
def communicators(kernels: Kernels, size: int) -> Iterator[list[MemoryCommunicator]]:
    fd = make_exchange_memory(size)
    try:
        yield [MemoryCommunicator(rank, size, fd, kernels) for rank in range(size)]
    finally:
        os.close(fd)


def by_all(ranks: list[MemoryCommunicator], act: Callable[[MemoryCommunicator], Any]) -> list[Any]:
    """What each rank got; the kernel lets other threads run while it waits."""
    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(act, ranks))


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_are_the_same_bits_at_all_ranks(kernels: Kernels, size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    with communicators(kernels, size) as ranks:
        for count in (1, 15, 16, 576, 4097, PART_BYTES // dtype.itemsize + 33):
            given = [torch.randn(count).to(dtype) for _ in ranks]
            got = by_all(ranks, lambda each, given=given: each.sum(given[each.rank].clone()))  # type: ignore[misc]
            wanted = torch.stack([each.float() for each in given]).sum(0)
            assert all(torch.equal(each, got[0]) for each in got)
            torch.testing.assert_close(
                got[0].float(), wanted, atol=2e-2 if dtype == torch.bfloat16 else 1e-5, rtol=1e-2
            )
        assert {each.num_calls for each in ranks} == {6}


def test_parts_come_together_at_rank_0(kernels: Kernels) -> None:
    sizes = [7, 8, 5]
    with communicators(kernels, 3) as ranks:
        for num_rows in (1, 3, PART_BYTES // 32 + 2):
            given = [torch.randn(num_rows, size) for size in sizes]
            got = by_all(ranks, lambda each, given=given: each.join(given[each.rank], sizes))  # type: ignore[misc]
            assert torch.equal(got[0], torch.cat(given, -1))
            assert [tuple(each.shape) for each in got] == [(num_rows, 20)] * 3


def test_the_least_number_is_known_to_all(kernels: Kernels) -> None:
    with communicators(kernels, 4) as ranks:
        numbers = [1 << 40, 7, 1 << 33, 12]
        assert by_all(ranks, lambda each: each.least(numbers[each.rank])) == [7] * 4
        assert by_all(ranks, lambda each: each.agree(each.rank != 2)) == [False] * 4


def test_many_in_a_row_never_meet_others(kernels: Kernels) -> None:
    """Ranks that are ahead do not write over what others still read."""

    def work(each: MemoryCommunicator) -> list[float]:
        return [float(each.sum(torch.full((100,), float(n + each.rank)))[99]) for n in range(2000)]

    with communicators(kernels, 3) as ranks:
        assert by_all(ranks, work) == [[3.0 * n + 3 for n in range(2000)]] * 3


def test_who_waits_hears_of_the_end(kernels: Kernels) -> None:
    with communicators(kernels, 2) as (first, second):
        threading.Timer(0.1, second.end).start()
        with pytest.raises(RuntimeError, match="has ended"):
            first.sum(torch.ones(4))
