"""The matrices of all experts of a layer, in the order in which the kernel reads them, in one piece of memory."""

from __future__ import annotations

from collections.abc import Callable

import torch

from worker_svc.runner.cpu.huge_pages import allocate
from worker_svc.runner.cpu.native.kernels import TILE
from worker_svc.runner.cpu.native.structs import PackedCall
from worker_svc.runner.cpu.packed_linear import PackingError

BITS = {torch.bfloat16: 16, torch.float32: 32}
Matrix = Callable[[int], torch.Tensor]
"""The matrix `[outputs, inputs]` of an expert."""


class PackedStack:
    """As many matrices as there are experts, and biases `[experts, outputs]`."""

    def __init__(self, num_experts: int, matrix: Matrix, biases: torch.Tensor | None = None) -> None:
        """`matrix` is called for one expert after another; what it gives is not kept."""
        first = matrix(0)
        outputs, inputs = first.shape
        if first.dtype not in BITS or inputs % 2:
            raise PackingError("the kernel takes float32, or bfloat16, and an even number of inputs")
        self.num_tiles = -(-outputs // TILE)
        self.packed = allocate((num_experts, self.num_tiles, inputs * TILE), first.dtype)
        for expert in range(num_experts):
            _pack(matrix(expert), self.packed[expert])
        self.biases = None if biases is None else in_whole_tiles(biases, self.num_tiles)
        self.calls = (PackedCall * num_experts)(
            *(
                PackedCall(
                    self.packed[expert].data_ptr(),
                    None if self.biases is None else self.biases[expert].data_ptr(),
                    inputs,
                    outputs,
                    inputs,
                    BITS[first.dtype],
                )
                for expert in range(num_experts)
            )
        )

    @property
    def weight_bytes(self) -> int:
        """Bytes of all matrices."""
        return self.packed.nbytes


def _pack(weight: torch.Tensor, to: torch.Tensor) -> None:
    """`[outputs, inputs]` to `[tiles, inputs * 32]`: of bfloat16, pairs of inputs lie together."""
    outputs, inputs = weight.shape
    together = 2 if weight.dtype == torch.bfloat16 else 1
    tiles = to.view(-1, inputs // together, TILE, together)
    whole = outputs // TILE
    tiles[:whole] = weight[: whole * TILE].reshape(whole, TILE, inputs // together, together).transpose(1, 2)
    if whole < len(tiles):
        tiles[whole] = 0
        rest = weight[whole * TILE :].reshape(-1, inputs // together, together)
        tiles[whole, :, : len(rest)] = rest.transpose(0, 1)


def in_whole_tiles(biases: torch.Tensor, num_tiles: int) -> torch.Tensor:
    """float32 `[experts, 32 * tiles]`."""
    whole = torch.zeros(len(biases), num_tiles * TILE)
    whole[:, : biases.shape[1]] = biases
    return whole
