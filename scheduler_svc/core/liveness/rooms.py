"""Whether other workers could take what a worker has, now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.model_identity import ModelIdentity


@dataclass
class _Room:
    worker: Worker
    num_places: int
    num_blocks: int


class Rooms:
    """What is free on some workers, less what has been taken of it."""

    def __init__(self, workers: Sequence[Worker], watermark_blocks_per_seq: int) -> None:
        """`watermark_blocks_per_seq`: blocks that each request leaves besides its own."""
        self._watermark = watermark_blocks_per_seq
        self._rooms = [
            _Room(
                worker,
                min(worker.limits.max_num_seqs - worker.num_active, worker.table.num_free_slots),
                worker.pool.num_available - watermark_blocks_per_seq * worker.num_active,
            )
            for worker in workers
        ]

    def take(self, request: Request, num_tokens: int, origin: ModelIdentity | None = None) -> bool:
        """Takes room for a request of so many tokens on the worker with the most places; False: there is none.
        `origin`: the identity that it has to go on under; None: any."""
        rooms = [room for room in self._rooms if origin in (None, room.worker.info.identity)]
        fitting = [room for room in rooms if self._fits(room, request, num_tokens)]
        if not fitting:
            return False
        best = max(fitting, key=lambda room: room.num_places)
        best.num_places -= 1
        best.num_blocks -= -(-num_tokens // best.worker.info.block_size) + self._watermark
        return True

    def _fits(self, room: _Room, request: Request, num_tokens: int) -> bool:
        worker = room.worker
        needed = -(-num_tokens // worker.info.block_size)
        return (
            room.num_places > 0
            and needed <= room.num_blocks
            and num_tokens <= worker.max_known_tokens(request.is_pooling)
            and worker.can_run(request)
        )
