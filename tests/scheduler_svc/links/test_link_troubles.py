"""A link that fails again and again does not loop hot (J9)."""

from __future__ import annotations

import grpc
import pytest

from scheduler_svc.links.troubles import LONGEST_DELAY_S, LinkTroubles
from signalbox.errors import UnavailableError
from tests.scheduler_svc.attached import dial, make_hello, make_report, serve


def test_a_worker_is_kept_away_for_longer_and_longer_with_the_reason() -> None:
    """J9."""
    troubles, now, waits = LinkTroubles(), 0.0, []
    for _ in range(12):
        troubles.note("w", "i", "it was out of step", now)
        start = now
        while True:
            try:
                troubles.check("w", "i", now)
                break
            except UnavailableError as error:
                assert "out of step" in error.message
                now += 0.25
        waits.append(now - start)
    assert waits[:5] == [0.0, 0.0, 0.5, 1.0, 2.0] and waits[-1] == LONGEST_DELAY_S
    assert troubles.counts == {"w": 12}


def test_troubles_are_forgotten_and_belong_to_a_process() -> None:
    troubles = LinkTroubles()
    for _ in range(5):
        troubles.note("w", "i", "x", 0.0)
    troubles.check("w", "another", 0.0)
    troubles.check("v", "i", 0.0)
    with pytest.raises(UnavailableError):
        troubles.check("w", "i", 1.0)
    troubles.note("w", "i", "x", 100.0)
    troubles.check("w", "i", 100.0)


async def test_a_worker_that_is_out_of_step_each_time_is_told_to_wait() -> None:
    """The first times it comes back at once: one bad report is nothing."""
    async with serve() as (loop, address), dial(address) as stub:
        for _ in range(3):
            worker = stub.AttachWorker()
            await worker.write(make_hello("w"))
            await worker.read()
            await worker.write(make_report(17))
            assert await worker.read() == grpc.aio.EOF
        kept_away = stub.AttachWorker()
        await kept_away.write(make_hello("w"))
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await kept_away.read()
        assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "report of step 17" in (refusal.value.details() or "")
        assert loop.troubles.counts == {"w": 3}


async def test_a_hello_that_is_refused_each_time_is_refused_before_it_is_read() -> None:
    async with serve() as (_, address), dial(address) as stub:
        codes = []
        for _ in range(4):
            worker = stub.AttachWorker()
            await worker.write(make_hello("w", max_num_batched_tokens=1))
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await worker.read()
            codes.append(refusal.value.code())
        assert codes == [grpc.StatusCode.INVALID_ARGUMENT] * 3 + [grpc.StatusCode.UNAVAILABLE]
