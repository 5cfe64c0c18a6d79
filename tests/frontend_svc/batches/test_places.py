"""Lines give way to other requests."""

from __future__ import annotations

import asyncio

from frontend_svc.batches.places import Places
from tests.frontend_svc.helpers import until


async def test_few_run_beside_others_and_more_when_they_have_ended() -> None:
    is_busy = True
    places = Places(8, 2, lambda: is_busy)
    taken = 0

    async def take() -> None:
        nonlocal taken
        await places.acquire()
        taken += 1

    tasks = [asyncio.create_task(take()) for _ in range(12)]
    await until(lambda: taken == 2)
    places.release()
    await until(lambda: taken == 3)
    await asyncio.sleep(0.05)
    assert taken == 3
    is_busy = False
    await until(lambda: taken == 9)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    places.release()
    await asyncio.wait_for(places.acquire(), 1)
