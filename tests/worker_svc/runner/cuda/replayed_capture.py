"""Stands in for CUDA graphs that are replayed: a replay runs the captured function again, unless the device fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.worker_svc.runner.cuda.unchecked_runner import UncheckedRunner
from worker_svc.core.batch import Sampled
from worker_svc.runner.cuda.captures import Results
from worker_svc.runner.cuda.runner import Launched

GONE = "CUDA error: an illegal memory access was encountered"


class Device:
    """As CUDA behaves: once it is lost, whatever is asked of it fails, for good."""

    is_lost = False

    def lose(self) -> None:
        """Fails, and every later call with it."""
        self.is_lost = True
        self.ask()

    def ask(self) -> None:
        """Raises AcceleratorError if it is lost."""
        if self.is_lost:
            raise torch.AcceleratorError(GONE)


class MortalRunner(UncheckedRunner):
    """A runner whose device can be lost."""

    def __init__(self, *args: Any, device_lost: Device, **settings: Any) -> None:
        self._device_lost = device_lost
        super().__init__(*args, **settings)

    def launch(self, *args: Any) -> Launched:
        """As `CudaRunner.launch`."""
        self._device_lost.ask()
        return super().launch(*args)

    def collect(self, launched: Launched) -> Sampled:
        """As `CudaRunner.collect`: an event of a step that has run cannot be waited for either."""
        self._device_lost.ask()
        return super().collect(launched)

    def check(self) -> None:
        """As `TorchRunner.check`."""
        self._device_lost.ask()
        super().check()


def fail_once() -> None:
    """A launch that fails, on a device that goes on."""
    raise RuntimeError("CUDA error: too many resources requested for launch")


class ReplayedCapture:
    """A `Capture` whose replay of a given number fails."""

    def __init__(self, failing: int = 0, fail: Callable[[], None] = fail_once) -> None:
        """failing: number of the replay, counted from 1; 0: none fails."""
        self.num_replays = 0
        self._failing, self._fail = failing, fail

    def __call__(self, run: Callable[[], Results]) -> tuple[Callable[[], object], Results]:
        """See `Capture`."""
        results = run()

        def replay() -> None:
            self.num_replays += 1
            for kept, made in zip(results, run(), strict=True):
                kept.copy_(made)
            if self.num_replays == self._failing:
                for kept in results:
                    kept.fill_(1)  # whoever takes them for results has wrong tokens
                self._fail()

        return replay, results
