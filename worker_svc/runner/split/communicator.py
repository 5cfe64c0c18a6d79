"""What ranks say to each other within a forward, in the same order at all of them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch


class Communicator(ABC):
    """The collectives of a group. RuntimeError when another rank is gone."""

    def __init__(self, rank: int, size: int, num_here: int) -> None:
        """num_here: ranks of this host, which share its memory."""
        self.rank, self.size, self.num_here = rank, size, num_here
        self.num_calls = 0
        """Collectives so far: equal at all ranks between two of them."""
        self.num_bytes = 0
        """Bytes that this rank gave to them."""
        self.seconds = 0.0
        """Time in them: waiting for others, and adding up."""

    @property
    def progress(self) -> int:
        """Rises while calls get on. Any thread may look."""
        return self.num_calls

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks, the same bits at all of them; `values` may be written."""
        values = values.contiguous()
        started = self._count(values)
        self._sum(values)
        self.seconds += time.perf_counter() - started
        return values

    def join(self, part: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        """At rank 0 the parts of all ranks side by side, `sizes` by rank of the last dimension; elsewhere zeros of that
        shape."""
        started = self._count(part)
        joined = self._join(part.contiguous().view(-1, part.shape[-1]), sizes)
        self.seconds += time.perf_counter() - started
        shape = (*part.shape[:-1], sum(sizes))
        return part.new_zeros(()).expand(shape) if joined is None else joined.view(shape)

    def least(self, number: int) -> int:
        """The least number that any rank has."""
        self.num_calls += 1
        return self._least(number)

    def agree(self, is_right: bool) -> bool:
        """True if it is right at all ranks."""
        return bool(self.least(int(is_right)))

    def end(self) -> None:  # noqa: B027 gloo hears of ends by itself
        """Lets whoever waits for others wait no longer. Any thread may call it."""

    @abstractmethod
    def _sum(self, values: torch.Tensor) -> None:
        """Puts the sum into `values`."""

    @abstractmethod
    def _join(self, part: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor | None:
        """`[n, sum of sizes]` of the parts `[n, size]`; None but at rank 0."""

    @abstractmethod
    def _least(self, number: int) -> int:
        """The least `number`."""

    def _count(self, values: torch.Tensor) -> float:
        """When it begins."""
        self.num_calls += 1
        self.num_bytes += values.nbytes
        return time.perf_counter()


class LoneCommunicator(Communicator):
    """The communicator of a rank that has nobody to say anything to."""

    def __init__(self) -> None:
        super().__init__(0, 1, 1)

    def _sum(self, values: torch.Tensor) -> None:
        pass

    def _join(self, part: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor | None:
        return part

    def _least(self, number: int) -> int:
        return number
