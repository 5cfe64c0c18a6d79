"""Events of pulls, as messages."""

from __future__ import annotations

from collections.abc import Sequence

from signalbox.protocol import columns
from signalbox.protocol.enums import ReadFault
from signalbox.v1 import from_worker_pb2, generation_pb2

MOST_NS = (1 << 32) - 1


def build_pull_ended(step_id: int, seconds: float, block_ns: Sequence[float]) -> from_worker_pb2.WorkerEvent:
    """The blocks of the pull that a step began are here. block_ns: what one of each group took."""
    ended = from_worker_pb2.BlockPullEnded(
        step_id=step_id,
        duration_us=int(seconds * 1e6),
        block_ns=columns.pack([min(int(each), MOST_NS) for each in block_ns], columns.U32),
    )
    return from_worker_pb2.WorkerEvent(block_pull_ended=ended)


def build_pull_failed(step_id: int, reason: str, fault: ReadFault) -> from_worker_pb2.WorkerEvent:
    """Nothing of it counts."""
    error = generation_pb2.Error(code="UnavailableError", message=reason[:500])
    ended = from_worker_pb2.BlockPullEnded(step_id=step_id, error=error, fault=fault)  # type: ignore[arg-type]
    return from_worker_pb2.WorkerEvent(block_pull_ended=ended)
