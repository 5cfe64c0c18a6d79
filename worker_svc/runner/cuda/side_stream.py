"""Work on a device beside its main stream."""

from __future__ import annotations

from collections.abc import Callable

import torch


def beside(device: torch.device, work: Callable[[], None]) -> Callable[[], None]:
    """Returns a callable that does `work` in the thread that calls it, behind all that the device was given before this
    call, and ends when it is done. On the CPU nothing is given ahead: `work` itself."""
    if device.type != "cuda":
        return work
    before = torch.cuda.Event()  # type: ignore[no-untyped-call]
    before.record(torch.cuda.current_stream(device))

    def run() -> None:
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_event(before)
        with torch.cuda.stream(stream):
            work()
        stream.synchronize()

    return run
