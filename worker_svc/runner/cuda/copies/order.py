"""In which order a device does what steps and copies give it: two streams, and marks in one for the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

Work = Callable[[], None]


class Mark(Protocol):
    """A place in the work of a device."""

    def synchronize(self) -> None:
        """Returns when all that is ahead of it has ended. Raises what went wrong with that."""


class Order(Protocol):
    """Has work done by a device: on the stream of the steps, or on that of the copies."""

    def mark(self) -> Mark:
        """A mark behind all that the steps' stream was given so far. The step thread calls it."""

    def run(self, work: Work) -> None:
        """Has work done on the steps' stream. The step thread calls it, and nobody waits."""

    def run_aside(self, work: Work, after: Sequence[Mark]) -> Mark:
        """Enqueues work on the copies' stream, after the marks and all earlier work of this stream. Returns a mark
        that follows it. Thread-safe. If it raises, no part of the work stays enqueued."""


class StreamOrder:
    """The `Order` of a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def mark(self) -> Mark:
        """A mark in the current stream, which is that of the steps in the step thread."""
        return _recorded(torch.cuda.current_stream(self._device))

    def run(self, work: Work) -> None:
        """Does work on the current stream."""
        work()

    def run_aside(self, work: Work, after: Sequence[Mark]) -> Mark:
        """Does work on the copies' stream, behind the marks; returns an event behind it."""
        for mark in after:
            assert isinstance(mark, torch.cuda.Event), "marks are of this order"
            self._stream.wait_event(mark)
        try:
            with torch.cuda.stream(self._stream):
                work()
        except BaseException:
            self._stream.synchronize()  # whoever hears of it gives the blocks away
            raise
        return _recorded(self._stream)


class HostOrder:
    """The `Order` of a CPU: all is done when it is given."""

    def mark(self) -> Mark:
        """A mark that has been reached."""
        return _Ended()

    def run(self, work: Work) -> None:
        """Does work."""
        work()

    def run_aside(self, work: Work, after: Sequence[Mark]) -> Mark:
        """Does work, and returns a mark that has been reached."""
        work()
        return _Ended()


class _Ended:
    """A mark that has been reached."""

    def synchronize(self) -> None:
        """Waits for nothing."""


def order_for(device: torch.device) -> Order:
    """How a device works."""
    return StreamOrder(device) if device.type == "cuda" else HostOrder()


def _recorded(stream: torch.cuda.Stream) -> Mark:
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(stream)
    return event
