"""Work on a device beside its main stream."""

from __future__ import annotations

from collections.abc import Callable

import torch


def beside(device: torch.device, work: Callable[[], None]) -> Callable[[], None]:
    """What makes `work` in the thread that calls it, behind all that was given to the device before this call, and
    returns when it is done. On the CPU nothing is given ahead: `work` itself."""
    if device.type != "cuda":
        return work
    given = torch.cuda.Event()  # type: ignore[no-untyped-call]
    given.record(torch.cuda.current_stream(device))

    def run() -> None:
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_event(given)
        with torch.cuda.stream(stream):
            work()
        stream.synchronize()

    return run
