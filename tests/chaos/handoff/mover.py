"""Moves requests between the workers of a ring, as an operator would, and remembers when."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc

from signalbox.links import rpc
from signalbox.links.tls.roles import Role
from signalbox.v1 import admin_pb2, admin_pb2_grpc
from tests.chaos.ring import Ring

LOOK_EVERY_S = 0.02


@dataclass(frozen=True)
class Move:
    """One that was begun."""

    request_id: str
    source: str
    target: str
    at: float
    """Seconds of the monotonic clock."""


@dataclass
class Mover:
    """Asks the scheduler of a ring for moves."""

    ring: Ring
    moves: list[Move] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    """Why a move was not begun."""
    is_over: bool = False
    """All streams have ended."""

    async def running(self) -> dict[str, str]:
        """Worker by request id, of all that run."""
        async with rpc.channel(self.ring.scheduler_address, Role.SCHEDULER) as channel:
            stub: Any = admin_pb2_grpc.AdminServiceStub(channel)
            call = stub.WatchBoard(admin_pb2.WatchBoardRequest(), timeout=5)
            board = await call.read()
            call.cancel()
        return {request.request_id: request.worker_id for request in board.requests}

    async def by_load(self) -> list[str]:
        """The workers of the ring, from the one that runs least."""
        counts = Counter((await self.running()).values())
        return sorted(self.ring.shape.workers, key=counts.__getitem__)

    async def move(self, request_id: str, target: str) -> bool:
        """Begins one; False: it was refused."""
        async with rpc.channel(self.ring.scheduler_address, Role.SCHEDULER) as channel:
            stub: Any = admin_pb2_grpc.AdminServiceStub(channel)
            request = admin_pb2.MoveRequestRequest(request_id=request_id, worker_id=target)
            try:
                answer = await stub.MoveRequest(request, timeout=5)
            except grpc.aio.AioRpcError as error:
                self.refusals[_without_names(error.details() or "")] += 1
                return False
        self.moves.append(Move(request_id, answer.source_worker_id, target, time.monotonic()))
        return True

    async def keep_moving(self, times: int, every_s: float) -> None:
        """Moves every request that runs to the next worker, again and again, each at most `times` times, while
        there are streams."""
        workers = self.ring.shape.workers
        while not self.is_over:
            counts = Counter(move.request_id for move in self.moves)
            started = time.monotonic()
            for request_id, worker in (await self.running()).items():
                if worker in workers and counts[request_id] < times:
                    target = workers[(workers.index(worker) + 1) % len(workers)]
                    await self.move(request_id, target)
            await asyncio.sleep(max(LOOK_EVERY_S, every_s - (time.monotonic() - started)))

    def pauses(self, request_id: str, times: list[float], within_s: float = 2.0) -> Iterator[float]:
        """The longest gap of a stream behind the beginning of each of its moves, until the next one at most."""
        begun = [move.at for move in self.moves if move.request_id == request_id]
        for at, next_at in zip(begun, [*begun[1:], float("inf")], strict=False):
            end = min(at + within_s, next_at)
            gaps = [b - a for a, b in itertools.pairwise(times) if b > at and a < end]
            if gaps:
                yield max(gaps)


def _without_names(words: str) -> str:
    return " ".join("..." if "lane-" in word else word for word in words.split())
