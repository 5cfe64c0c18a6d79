"""CUDA graphs: records all that a function launches on the device, to launch it again at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import torch

from worker_svc.runner.progress import Progress

WARM_UPS = 2
"""Runs before a capture: Triton compiles its kernels, libraries choose theirs."""
Results = tuple[torch.Tensor, ...]


class Capture(Protocol):
    """Runs a function once while its launches are recorded."""

    def __call__(self, run: Callable[[], Results]) -> tuple[Callable[[], object], Results]:
        """Returns what replays the launches, and the results, which each replay overwrites.

        A replay reads the memory that `run` read: whoever replays keeps all of that alive; the recording does not.
        RuntimeError if `run` waits for the device or copies from the host.
        """


class CudaCapture:
    """Captures CUDA graphs that share one pool of memory: they must not run at the same time.

    Not to be used while another thread uses the device."""

    def __init__(self) -> None:
        self._pool: Any = torch.cuda.graph_pool_handle()
        self._has_graphs = False
        # One for all warm-ups: cuBLAS keeps a workspace for each stream that it has seen, 32 MiB on an H100.
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(self, run: Callable[[], Results]) -> tuple[Callable[[], object], Results]:
        """Captures on a stream of its own, after warm-ups; as `Capture` says."""
        stream = self._stream
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                results = run()
        except BaseException:
            self._take_pool_back()
            raise
        self._has_graphs = True
        return graph.replay, results

    def _take_pool_back(self) -> None:
        """After a capture that failed. Where the driver has spoiled it, torch raises ahead of taking the pool from the
        capture: the allocator would free nothing any more where memory runs short, and refuse the next capture."""
        with suppress(RuntimeError):  # it has been taken back
            device = torch.cuda.current_device()
            torch._C._cuda_endAllocateToPool(device, self._pool)
            torch._C._cuda_releasePool(device, self._pool)
        if not self._has_graphs:  # nobody holds the pool, but what the capture left in it
            self._pool = torch.cuda.graph_pool_handle()


class CountedCapture:
    """A `Capture` that tells the log how many graphs there are."""

    def __init__(self, capture: Capture, progress: Progress) -> None:
        self._capture, self._progress = capture, progress

    def __call__(self, run: Callable[[], Results]) -> tuple[Callable[[], object], Results]:
        """Captures; afterwards the log may have a line."""
        captured = self._capture(run)
        self._progress.end(f"a decode step of {len(captured[1][0])} rows")
        return captured
