"""A scrape that comes when the service's event loop has ended."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from signalbox.telemetry.metrics_server import LoopCollector


def test_a_scrape_behind_the_end_leaves_no_coroutine() -> None:
    async def make() -> LoopCollector:
        return LoopCollector(lambda: ())

    collector = asyncio.run(make())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="closed"):
            collector.collect()
        gc.collect()
    assert [str(warning.message) for warning in told] == []


async def test_a_scrape_reads_in_the_loop() -> None:
    loops = []
    collector = LoopCollector(lambda: loops.append(asyncio.get_running_loop()) or ())  # type: ignore[func-returns-value]
    assert list(await asyncio.to_thread(collector.collect)) == []
    assert loops == [asyncio.get_running_loop()]
