"""A stream's reader and writer, side by side."""

from __future__ import annotations

import asyncio

import pytest

from signalbox.links.rpc import run_until_first_ends


async def fail() -> None:
    raise OSError("the peer is gone")


async def write_too_late() -> None:
    raise asyncio.InvalidStateError


@pytest.mark.parametrize("work", [(fail, write_too_late), (write_too_late, fail)])
async def test_a_late_write_does_not_hide_what_ended_the_stream(work: tuple[object, object]) -> None:
    for _ in range(20):  # which of them is seen first is chance
        with pytest.raises(OSError, match="the peer is gone"):
            await run_until_first_ends(*(start() for start in work))  # type: ignore[operator]


async def test_the_others_are_cancelled_before_it_returns() -> None:
    ended = []

    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    await run_until_first_ends(wait_for_ever(), asyncio.sleep(0))
    assert ended == [True]


async def test_a_late_write_alone_is_no_error_and_ends_the_rest() -> None:
    started = asyncio.Event()

    async def read() -> None:
        started.set()
        await asyncio.Event().wait()

    reading = read()
    await run_until_first_ends(write_too_late(), reading)
    assert started.is_set() and reading.cr_frame is None, "it ran, and runs no more"
