"""A disk tier that runs, over a simulated model's blocks and real files."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

from signalbox.protocol import columns
from signalbox.protocol.model_identity import ModelIdentity
from signalbox.protocol.parts.disk import DiskOrders, NamedBlock
from signalbox.v1 import from_worker_pb2
from worker_svc.core.batch import RunnerInfo
from worker_svc.disk.directory import SegmentDirectory
from worker_svc.disk.fingerprint import fingerprint_of
from worker_svc.disk.tier import DiskTier
from worker_svc.runner.sim.model import SimRunner

INFO = RunnerInfo("sim", 16, 4, 64, 100, (), identity=ModelIdentity("weights"))
NAMES = [bytes([number]) * 16 for number in range(1, 20)]
WAIT_S = 20.0


class Running:
    """A tier, and what it tells."""

    def __init__(self, root: Path, max_bytes: int = 1 << 20) -> None:
        self.runner = SimRunner(INFO)
        sizes = self.runner.record_bytes()
        self.told: queue.SimpleQueue[from_worker_pb2.WorkerEvent] = queue.SimpleQueue()
        directory = SegmentDirectory(root, fingerprint_of(INFO, sizes), sizes, max_bytes)
        self.tier = DiskTier(self.runner, directory, self.told.put)

    def fill(self, block: int, value: int) -> None:
        self.runner._cache[block] = value

    def content(self, block: int) -> int:
        return int(self.runner._cache[block][0])

    def next(self, kind: str) -> Any:
        """The next event of a kind."""
        while True:
            event = self.told.get(timeout=WAIT_S)
            if event.WhichOneof("event") == kind:
                return getattr(event, kind)

    def store(self, step_id: int, blocks: list[int], names: list[bytes]) -> None:
        """Has them stored, and waits until they are there."""
        self.tier.begin(
            DiskOrders(step_id, stores=[NamedBlock(0, *each) for each in zip(blocks, names, strict=True)])
        )
        assert self.next("disk_stores_ended").step_id == step_id
        while not any(group.added for group in self.next("disk_news").groups):
            pass

    def load(self, step_id: int, blocks: list[int], names: list[bytes], most_s: float = WAIT_S) -> list[int]:
        """Numbers of those that were lost."""
        loads = [NamedBlock(0, *each) for each in zip(blocks, names, strict=True)]
        self.tier.begin(DiskOrders(step_id, loads, int(most_s * 1e6)))
        ended = self.next("disk_loads_ended")
        assert ended.step_id == step_id
        return columns.unpack(ended.lost, columns.U32)
