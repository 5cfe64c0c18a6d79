"""Threads and tasks that an error ends are seen (docs/liveness.md, LO1)."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from signalbox.runtime.parts import (
    CALLBACKS,
    FAILURES,
    THREADS,
    PartFailures,
    start_task,
    start_thread,
    watch_rest,
)
from signalbox.telemetry.metrics_server import PartsCollector


class DeathError(BaseException):
    """What no `except Exception` catches."""


def test_a_thread_that_ends_of_anything_is_told_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """LO1."""
    told = list[BaseException]()

    def die() -> None:
        raise DeathError("of anything")

    start_thread("dying thread", die, told.append).join()
    assert [type(error) for error in told] == [DeathError]
    assert FAILURES.counts["dying thread"] == 1 and "dying thread" in FAILURES.ended
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "dying thread" in record.message and record.exc_info is not None


def test_a_thread_that_returns_has_not_failed() -> None:
    """LO1."""
    ran = threading.Event()
    start_thread("calm thread", ran.set).join()
    assert ran.is_set() and FAILURES.counts["calm thread"] == 0 and "calm thread" not in FAILURES.ended


async def test_a_task_that_an_error_ends_is_told_and_one_that_is_cancelled_is_not() -> None:
    """LO1."""
    told = list[BaseException]()

    async def die() -> None:
        raise ValueError("of a bug")

    async def wait() -> None:
        await asyncio.Event().wait()

    dying, waiting = start_task("dying task", die(), told.append), start_task("waiting task", wait())
    with pytest.raises(ValueError, match="of a bug"):
        await dying
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert [str(error) for error in told] == ["of a bug"]
    assert "dying task" in FAILURES.ended and "waiting task" not in FAILURES.ended


def test_the_page_shows_what_has_ended_and_what_has_not() -> None:
    """LO1: a part without an error is there with 0, so that its first error is a rise."""
    failures, registry = PartFailures(), CollectorRegistry()
    for part in ("good", "odd", "ended"):
        failures.begin(part)
    failures.add("odd", ValueError())
    failures.add("ended", ValueError(), is_end=True)
    registry.register(PartsCollector(failures))
    page = generate_latest(registry).decode()
    for part, count, ended in (("good", 0, 0), ("odd", 1, 0), ("ended", 1, 1)):
        assert f'signalbox_part_failures_total{{part="{part}"}} {count}.0' in page
        assert f'signalbox_part_ended{{part="{part}"}} {ended}.0' in page


async def test_what_nobody_catches_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """LO1: in callbacks of the loop, and in threads without a name of their own; both are logged as ever."""
    loop, logged = asyncio.get_running_loop(), list[object]()
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(loop, "default_exception_handler", logged.append)
    watch_rest(loop)
    before = FAILURES.counts

    def die() -> None:
        raise ValueError("of a bug")

    loop.call_soon(die)
    thread = threading.Thread(target=die)
    thread.start()
    thread.join()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    after = FAILURES.counts
    assert (after[CALLBACKS], after[THREADS]) == (before[CALLBACKS] + 1, before[THREADS] + 1)
    assert len(logged) == 1 and not {CALLBACKS, THREADS} & FAILURES.ended
    loop.set_exception_handler(None)
