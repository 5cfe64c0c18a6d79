"""Every fault by name."""

from __future__ import annotations

from tests.chaos.faults.changes import CHANGE_FAULTS
from tests.chaos.faults.fault import Fault
from tests.chaos.faults.frontends import FRONTEND_FAULTS
from tests.chaos.faults.links import LINK_FAULTS
from tests.chaos.faults.mixed import MIXED_FAULTS
from tests.chaos.faults.moves import MOVE_FAULTS
from tests.chaos.faults.ranks import RANK_FAULTS
from tests.chaos.faults.schedulers import SCHEDULER_FAULTS
from tests.chaos.faults.starved import STARVED_FAULTS
from tests.chaos.faults.workers import WORKER_FAULTS

ALL = (
    *WORKER_FAULTS,
    *RANK_FAULTS,
    *SCHEDULER_FAULTS,
    *FRONTEND_FAULTS,
    *LINK_FAULTS,
    *MOVE_FAULTS,
    *CHANGE_FAULTS,
    *STARVED_FAULTS,
    *MIXED_FAULTS,
)

__all__ = ["ALL", "Fault"]
