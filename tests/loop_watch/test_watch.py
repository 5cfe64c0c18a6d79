"""The watch finds what it is there to find, in processes as tests start them."""

from __future__ import annotations

import asyncio
import functools
import time
from pathlib import Path

import pytest

from tests.chaos.ring import Shape, open_ring
from tests.loop_watch.callback import describe
from tests.loop_watch.report import Report, watching
from tests.loop_watch.watch import Watch
from tools import packages

TREE = Path(__file__).parents[2]


def burn(seconds: float) -> None:
    """Takes that much processor time of its thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def _burn_later(seconds: float) -> None:
    await asyncio.sleep(0)
    burn(seconds)
    await asyncio.sleep(0)


def test_what_holds_a_loop_is_named_and_what_sleeps_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio.Handle, "_run", asyncio.Handle._run)
    Watch(str(tmp_path / "report"), 0.1, "me").install()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(burn, 0.15)
        loop.call_soon(time.sleep, 0.2)  # wall time alone
        await asyncio.create_task(_burn_later(0.3))
        await asyncio.to_thread(burn, 0.2)  # not the loop's thread

    asyncio.run(run())
    report = Report(tmp_path / "report")
    long = report.long(0.1)
    assert report.services == {"me"}
    assert [each.name for each in long] == ["_burn_later", "burn"]
    assert "test_watch.py" in long[0].place and "burn" in str(long[0].stacks)
    with pytest.raises(AssertionError, match="_burn_later"):
        report.check("me")


def test_partial_functions_and_methods_have_names() -> None:
    assert describe(functools.partial(burn, 1))[0] == "burn"
    assert describe([].append) == ("list.append", "built in")


@pytest.mark.timeout(120)
async def test_services_of_a_ring_are_watched(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """With a limit that the work of a start passes, each is heard of by name."""
    if request.config.getoption("fresh"):
        pytest.skip("forks of the zygote are watched")
    with watching(tmp_path, limit_s=0.001) as report:
        async with open_ring(Shape(runner="sim", num_workers=1), TREE):
            pass
        services = {package.name for package in packages.PACKAGES if package.is_service}
        assert {each.service for each in report.long(0.001)} == services == report.services
    with pytest.raises(AssertionError, match="not watched"):
        report.check("another_svc")


@pytest.mark.timeout(120)
async def test_no_loop_stands_still_with_millions_of_blocks(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Kind H: the idle check of 4,000,000 blocks was one callback of 4.4 s of processor time."""
    if request.config.getoption("fresh"):
        pytest.skip("forks of the zygote are watched")
    with watching(tmp_path) as report:
        shape = Shape(
            runner="sim",
            num_workers=1,
            scheduler_flags=("--integrity-check-s=0.1",),
            worker_flags=("--num-blocks=4000000",),
        )
        async with open_ring(shape, TREE) as ring:
            ready = time.time()
            await asyncio.sleep(1)
            await ring.kill("scheduler")
            ring.start("scheduler")
            await ring.ready("scheduler", "worker-0", "frontend-0")
            await asyncio.sleep(1)
        report.check(*(each.name for each in packages.PACKAGES if each.is_service), since=ready)
