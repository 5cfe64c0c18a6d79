"""Rows of gates and ups in the order in which the kernel reads them."""

from __future__ import annotations

import torch

from worker_svc.runner.cpu.native.kernels import LANES


def gate_up_order(width: int, *, is_concatenated: bool) -> torch.Tensor:
    """int64 `[2 * width]` rows of gates and ups, which lie one kind behind the other or by turns: 16 gates, 16 ups, and
    so on, so that they meet in one tile. `width` is in whole 16s."""
    rows = torch.arange(2 * width)
    gates, ups = (rows[:width], rows[width:]) if is_concatenated else (rows[::2], rows[1::2])
    return torch.stack((gates.view(-1, LANES), ups.view(-1, LANES)), dim=1).flatten()
