"""What threads read and write of a runner for hand-offs, on the virtual clock: at some time, at once, and perhaps when
nobody waits for it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.simulation.ring.clock import current_process

GOES_ON = 0.5
"""Share of the pieces that have begun when whoever wants them is cancelled."""


async def run(mover: Any, work: Callable[[], Any], threads: Any = None) -> Any:
    """As `Mover._run`."""
    process = current_process()
    loop, rng = process.loop, process.world.rng
    done = loop.create_future()

    def act() -> None:
        if done.cancelled() and rng.random() >= GOES_ON:
            return
        result, failure = None, None
        try:
            result = work()
        except Exception as error:
            failure = error
        if done.cancelled():
            return
        if failure is not None:
            done.set_exception(failure)
        else:
            done.set_result(result)

    loop.call_later(rng.uniform(0.0, process.node.setup.move_s), act)
    try:
        return await done
    except asyncio.CancelledError:
        done.cancel()
        raise
