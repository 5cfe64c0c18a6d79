"""The ring's load as a frontend shows it to whoever picks one of several: three gauges of the newest board."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from frontend_svc.links.redial import Backoff
from signalbox.board.link import watch_board
from signalbox.board.snapshot import Board
from signalbox.errors import SignalboxError
from signalbox.runtime.parts import FAILURES
from signalbox.telemetry import attributes as names

log = logging.getLogger(__name__)


class RingGauges(Collector):
    """What all workers together have and have not begun. Every frontend of a ring shows the same; while there is no
    scheduler, none shows any."""

    def __init__(self, scheduler: Callable[[], str]) -> None:
        """`scheduler`: host:port of the one that leads now."""
        self._scheduler = scheduler
        self._board: Board | None = None

    async def keep_watching(self) -> None:
        """Takes one snapshot after another, for ever."""
        backoff = Backoff()
        while True:
            try:
                async for board in watch_board(self._scheduler()):
                    backoff.reset()
                    self._board = board
            except SignalboxError as error:
                if self._board is not None:
                    log.warning("the ring's load is not known: %s", error.message)
            except Exception as error:  # gauges are no reason to end
                FAILURES.add("ring-gauges", error)
            self._board = None
            await asyncio.sleep(backoff.next_s())

    def collect(self) -> Iterator[Metric]:
        """Called at each scrape."""
        if self._board is not None:
            for name, (documentation, value) in load_of(self._board).items():
                yield GaugeMetricFamily(name, documentation, value=value)


def load_of(board: Board) -> dict[str, tuple[str, float]]:
    """Documentation and value of each gauge. A preempted request waits, as in vLLM; cached blocks count as free."""
    workers = [worker for worker in board.workers if worker.attached]
    num_preempted = sum(worker.num_preempted for worker in workers)
    num_blocks = sum(worker.num_blocks for worker in workers)
    num_held = sum(worker.num_held_blocks for worker in workers)
    return {
        names.VLLM_WAITING: ("Requests of the ring without blocks.", board.num_waiting + num_preempted),
        names.VLLM_RUNNING: (
            "Requests of the ring with blocks.",
            sum(worker.num_running for worker in workers),
        ),
        names.VLLM_KV_USAGE: (
            "Share of the ring's blocks that requests hold, from 0 to 1.",
            num_held / num_blocks if num_blocks else 1.0,
        ),
    }
