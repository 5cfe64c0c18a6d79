"""The threads that torch and the kernels use in a step."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from worker_svc.runner.cpu.step_threads import StepThreads

logger = logging.getLogger(__name__)


class ThreadLimit:
    """Limits the threads of steps, and measures these."""

    def __init__(self, threads: StepThreads | None) -> None:
        """threads: None leaves the libraries their own choice."""
        self._threads = threads
        self._set: tuple[int, int] | None = None

    def apply(self, num_tokens: int) -> None:
        """Sets the threads for a step of so many query tokens. The libraries count by calling thread."""
        if self._threads is None:
            return
        limit = threading.get_ident(), self._threads.of(num_tokens)
        if limit != self._set:
            torch.set_num_threads(limit[1])
        self._set = limit

    @contextmanager
    def around_step(self, num_tokens: int) -> Iterator[None]:
        """Limits the threads while a step of so many query tokens runs, and takes its time."""
        self.apply(num_tokens)
        started = time.perf_counter()
        yield
        if self._threads is not None and self._threads.took(num_tokens, time.perf_counter() - started):
            logger.info("threads of a step of few tokens: %d now", self._threads.few)
