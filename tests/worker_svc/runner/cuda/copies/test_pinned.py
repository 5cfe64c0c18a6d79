"""Pinned memory: what CUDA is asked for, as far as that shows without it."""

from __future__ import annotations

import gc
import mmap

import pytest
import torch

from worker_svc.runner.cuda.copies.pinned import host_empty
from worker_svc.runner.errors import ModelLoadError


class Cudart:
    """Stands in for CUDA's runtime, which is not here."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.pinned: dict[int, int] = {}
        """Bytes by address."""

    def cudaHostRegister(self, address: int, num_bytes: int, flags: int) -> int:  # noqa: N802
        """As the function of CUDA."""
        assert flags == 0
        if not self.status:
            self.pinned[address] = num_bytes
        return self.status

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        """As the function of CUDA."""
        del self.pinned[address]
        return 0


def test_memory_is_pinned_for_as_long_as_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """TR15: whole pages of its own, so that no page is pinned twice."""
    cudart = Cudart()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: cudart)
    first = host_empty((3, 5, 7), torch.bfloat16, is_pinned=True)
    second = host_empty((2,), torch.float32, is_pinned=True)
    assert sorted(cudart.pinned.values()) == [2 * 4, 3 * 5 * 7 * 2]
    assert all(address % mmap.PAGESIZE == 0 for address in cudart.pinned)
    assert not host_empty((0, 4), torch.float32, is_pinned=True).numel() and len(cudart.pinned) == 2
    part = first[1:].fill_(3)
    del first, second
    gc.collect()
    assert list(cudart.pinned.values()) == [3 * 5 * 7 * 2]
    assert part.sum() == 2 * 5 * 7 * 3
    del part
    gc.collect()
    assert not cudart.pinned


def test_a_system_that_pins_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "cudart", lambda: Cudart(status=2))
    with pytest.raises(
        ModelLoadError, match=r"num_host_blocks and hand_off need .* 8 bytes could not be pinned"
    ):
        host_empty((2,), torch.float32, is_pinned=True)
