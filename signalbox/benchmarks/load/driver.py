"""Sends requests: a fixed number of streams (closed loop) or at a given rate (open loop)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from signalbox.benchmarks.load.record import Record
from signalbox.benchmarks.load.workload import Plan

Window = tuple[float, float]
FAILED_PAUSE_S = 0.1


class Link(Protocol):
    """A server to send requests to."""

    async def find_model(self) -> str:
        """The model that requests run on. Raises SignalboxError when nothing answers or the choice is not clear."""

    async def run(self, plan: Plan, record: Record) -> None:
        """Runs a request to its end and fills in `record`; what goes wrong is told there, not raised."""

    async def close(self) -> None:
        """Cancels what still runs."""


@dataclass(frozen=True)
class Limit:
    """When to send no more; whichever comes first. At least one is set."""

    num_requests: int | None = None
    duration_s: float | None = None


async def closed_loop(
    link: Link, plans: Iterator[Plan], streams: int, limit: Limit
) -> tuple[list[Record], Window]:
    """Each of `streams` sends its next request when its last one has ended."""
    records: list[Record] = []
    source = islice(plans, limit.num_requests)
    start = time.perf_counter()
    stop_at = start + (limit.duration_s or float("inf"))

    async def stream() -> None:
        for plan in source:
            now = time.perf_counter()
            if now >= stop_at:
                return
            record = Record(intended_at=now, num_prompt_tokens=len(plan.prompt))
            records.append(record)
            await link.run(plan, record)
            if record.error:  # a server that refuses at once must not be asked thousands of times a second
                await asyncio.sleep(FAILED_PAUSE_S)

    await asyncio.gather(*(stream() for _ in range(streams)))
    return records, (start, _end(records, start, stop_at))


async def open_loop(
    link: Link, plans: Iterator[Plan], offsets_s: Iterable[float], limit: Limit
) -> tuple[list[Record], Window]:
    """Sends each request at its time, however many still run."""
    records: list[Record] = []
    tasks: list[asyncio.Task[None]] = []
    start = time.perf_counter()
    stop_at = start + (limit.duration_s or float("inf"))
    for plan, offset in zip(islice(plans, limit.num_requests), offsets_s, strict=False):
        at = start + offset
        if at >= stop_at:
            break
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        record = Record(intended_at=at, num_prompt_tokens=len(plan.prompt))
        records.append(record)
        tasks.append(asyncio.create_task(link.run(plan, record)))
    await asyncio.gather(*tasks)
    return records, (start, _end(records, start, stop_at))


def _end(records: Iterable[Record], start: float, stop_at: float) -> float:
    """With a duration, what comes behind it does not count: the streams run empty then."""
    return min(stop_at, max((record.ended_at for record in records), default=start))
