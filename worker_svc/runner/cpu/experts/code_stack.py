"""The matrices of all experts of a layer as whole numbers, packed as the kernel reads them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch

from worker_svc.runner.cpu.experts.packed_stack import in_whole_tiles
from worker_svc.runner.cpu.huge_pages import allocate
from worker_svc.runner.cpu.native.structs import PackedCall
from worker_svc.runner.cpu.packed_codes import PackedCodes, number_type, packed_shape
from worker_svc.weights.quantised import QuantisedMatrix


class CodeStack:
    """As many matrices as there are experts, in one piece of memory, but for those in another form than the first."""

    def __init__(
        self, num_experts: int, matrix: Callable[[int], QuantisedMatrix], order: torch.Tensor | None = None
    ) -> None:
        """`matrix` is called for one expert after another, and what it gives is not kept. `order`: int64 `[outputs]`,
        which row comes where; None: as they are. PackingError for what the kernel cannot read."""
        self._order = order
        self._packed: list[PackedCodes] = []
        self._biases: torch.Tensor | None = None
        self.forms: list[str] = []
        """The form of each matrix."""
        memory: torch.Tensor | None = None
        for expert in range(num_experts):
            made = matrix(expert)
            if order is not None:
                made = made.with_rows(lambda rows: rows[order])
            if memory is None:
                memory = allocate((num_experts, *packed_shape(made, number_type(made))), torch.uint8)
            self._packed.append(PackedCodes(made, None, memory[expert]))
            self.forms.append(made.form)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all matrices."""
        return sum(packed.packed.nbytes for packed in self._packed)

    @property
    def calls(self) -> ctypes.Array[PackedCall]:
        """What the kernel is told of each matrix."""
        return (PackedCall * len(self._packed))(*(packed.call for packed in self._packed))

    def set_biases(self, biases: torch.Tensor) -> None:
        """`[experts, outputs]`, added to the products from now on."""
        num_tiles = len(self._packed[0].packed)
        rows = biases if self._order is None else biases[:, self._order]
        self._biases = in_whole_tiles(rows, num_tiles)
        for packed, bias in zip(self._packed, self._biases, strict=True):
            packed.call.bias = bias.data_ptr()

    def matrix(self, expert: int) -> QuantisedMatrix:
        """The matrix of an expert, its rows as they were given."""
        packed = self._packed[expert].matrix()
        if self._order is None:
            return packed
        places = self._order.argsort()
        return packed.with_rows(lambda rows: rows[places])
