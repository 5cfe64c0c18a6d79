"""What hand-offs take in simulated time."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler_svc.core.parts.handoff.commit import Arrived
from scheduler_svc.core.parts.handoff.typed import Handoff
from signalbox.benchmarks.scheduler.counting_worker import CountingWorker


@dataclass
class Transfers:
    """Copies blocks between workers, one request after the other into each of them."""

    workers: dict[str, CountingWorker]
    bytes_per_block: int
    bytes_per_s: float
    latency_s: float
    """Delay of one message, and of the first byte."""
    _busy_until: dict[str, float] = field(default_factory=dict)
    """When the copies into a target end that have been begun, by its name."""
    _num_read: dict[int, int] = field(default_factory=dict)
    """Blocks that the target has ahead of the freeze, by transfer."""

    def begin(self, handoff: Handoff, num_found: int, now: float) -> float:
        """A target reads what is written whole, but for the blocks at the head that it has. Returns when it is
        ready."""
        num_whole = num_found
        arrived = self.workers[handoff.source.info.worker_id].tail_of(handoff.source_slot)
        if handoff.has_blocks and arrived is not None:
            num_whole = arrived.num_computed // handoff.source.info.block_size
        self._num_read[handoff.transfer] = num_whole
        return self._copy(handoff, max(num_whole - num_found, 0), now)

    def end(self, handoff: Handoff, arrived: Arrived, now: float) -> float:
        """A source has frozen the slot. Returns when the target has all that was not read before."""
        num_blocks = 0
        if handoff.has_blocks:
            num_blocks = -(-arrived.num_computed // handoff.source.info.block_size)
        return self._copy(handoff, max(num_blocks - self._num_read.pop(handoff.transfer, 0), 0), now)

    def _copy(self, handoff: Handoff, num_blocks: int, now: float) -> float:
        target = handoff.target.info.worker_id
        begun = max(now, self._busy_until.get(target, 0.0))
        self._busy_until[target] = begun + num_blocks * self.bytes_per_block / self.bytes_per_s
        return self._busy_until[target] + self.latency_s
