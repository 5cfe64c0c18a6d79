"""The parts that a worker has by what its runner can do."""

from __future__ import annotations

from worker_svc.core.batch import RunnerInfo
from worker_svc.core.handoff.handoffs import Handoffs
from worker_svc.core.parts.handoff import HandoffPart
from worker_svc.core.parts.lanes import LanesPart
from worker_svc.core.parts.part import Parts
from worker_svc.core.parts.pulls import PullsPart
from worker_svc.core.requests.request_state import RequestTable


def make_parts(info: RunnerInfo, table: RequestTable, handoffs: Handoffs) -> Parts:
    """All but the disk tier, which whoever has one adds."""
    parts = Parts()
    if info.num_lanes > 1:
        parts.add(LanesPart(table))
    if info.kv_layout:
        parts.add(HandoffPart(table, handoffs))
        parts.add(PullsPart())
    return parts
