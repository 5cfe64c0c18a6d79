"""Collectives over groups of torch: those of GPUs are tried over gloo, by the same code (RK2, RK20)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import FileStore, PrefixStore, Store
from torch.distributed import ProcessGroupGloo

from signalbox.errors import StartupError
from tests.worker_svc.ranks.groups import settings_for
from worker_svc.ranks.meeting import Parts, check_gpus
from worker_svc.ranks.place import place_of
from worker_svc.runner.split.communicator import Communicator
from worker_svc.runner.split.over_gloo import GlooCommunicator
from worker_svc.runner.split.over_nccl import NcclCommunicator
from worker_svc.runner_factory import make_runner

SIZES = [7, 8, 5]
CPU = torch.device("cpu")
KINDS = ["gloo", "of a device"]


def gloo(store: Store, rank: int, size: int) -> Any:
    return ProcessGroupGloo(store, rank, size, timedelta(seconds=60))


def by_gloo(store: Store, rank: int, size: int) -> Communicator:
    return GlooCommunicator(rank, size, size, gloo(store, rank, size))


def of_a_device(store: Store, rank: int, size: int) -> Communicator:
    """As GPUs have it, on a device that torch has everywhere."""
    host = by_gloo(PrefixStore("host", store), rank, size)
    return NcclCommunicator(gloo(PrefixStore("device", store), rank, size), CPU, host)


@contextmanager
def communicators(kind: str, path: Path, size: int) -> Iterator[Sequence[Communicator]]:
    make = by_gloo if kind == "gloo" else of_a_device
    store = str(path / "ranks")
    with ThreadPoolExecutor(size) as pool:
        made = pool.map(lambda rank: make(FileStore(store, size), rank, size), range(size))
        yield list(made)


def by_all(ranks: Sequence[Communicator], act: Callable[[Communicator], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(act, ranks))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_are_the_same_bits_at_all_ranks(kind: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """RK2."""
    torch.manual_seed(0)
    given = [torch.randn(5, 577).to(dtype) for _ in SIZES]
    with communicators(kind, tmp_path, len(SIZES)) as ranks:
        got = by_all(ranks, lambda each: each.sum(given[each.rank].clone()))
        assert [each.num_calls for each in ranks] == [1, 1, 1]
    assert all(torch.equal(each, got[0]) for each in got)
    wanted = torch.stack([each.float() for each in given]).sum(0)
    torch.testing.assert_close(got[0].float(), wanted, atol=6e-2, rtol=1e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_come_together_at_rank_0(kind: str, tmp_path: Path) -> None:
    """RK7."""
    given = [torch.randn(2, 3, size) for size in SIZES]
    with communicators(kind, tmp_path, len(SIZES)) as ranks:
        got = by_all(ranks, lambda each: each.join(given[each.rank], SIZES))
    assert torch.equal(got[0], torch.cat(given, -1))
    assert [tuple(each.shape) for each in got] == [(2, 3, 20)] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_least_number_is_known_to_all(kind: str, tmp_path: Path) -> None:
    """RK8."""
    numbers = [1 << 40, 7, 1 << 33]
    with communicators(kind, tmp_path, len(SIZES)) as ranks:
        assert by_all(ranks, lambda each: each.least(numbers[each.rank])) == [7] * 3
        assert by_all(ranks, lambda each: each.agree(each.rank != 2)) == [False] * 3


def test_who_waits_on_the_host_hears_of_the_end(tmp_path: Path) -> None:
    """RK5: the host's half; that kernels on a device are given up too is not seen here."""
    with communicators("of a device", tmp_path, 2) as (first, second):
        threading.Timer(0.1, first.end).start()
        with pytest.raises(RuntimeError, match="has ended"):
            first.least(1)
        second.least(1)  # gloo keeps whoever lets go of a group until all have come, or for its timeout


def test_memory_of_gpus_is_not_divided(tmp_path: Path) -> None:
    """RK20: each rank has what its own device has."""
    with communicators("of a device", tmp_path, 2) as ranks:
        assert [each.num_here for each in ranks] == [1, 1]
    with communicators("gloo", tmp_path / "..", 2) as ranks:
        assert [each.num_here for each in ranks] == [2, 2]


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="there are GPUs for two ranks")
def test_missing_gpus_are_said_ahead_of_any_loading(tmp_path: Path) -> None:
    """RK20."""
    settings = settings_for(tmp_path, device="cuda")
    assert Parts.of(settings).on_gpus
    with pytest.raises(
        StartupError, match="each rank has a GPU of its own, this host needs 2, and torch sees"
    ):
        check_gpus(2)
    (tmp_path / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    with pytest.raises(StartupError, match="each rank has a GPU of its own"):
        make_runner(settings)


def test_a_rank_has_the_gpu_of_its_number_on_its_host() -> None:
    """RK20: as torchrun numbers them; a pod of a LeaderWorkerSet has one rank."""
    torchrun = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    local = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    places = [place_of(torchrun | local, 4), place_of(torchrun, 4)]
    assert [(place.num_here, place.number_here) for place in places if place] == [(2, 1), (1, 0)]
