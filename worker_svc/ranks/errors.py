"""What goes wrong in a group of ranks."""

from __future__ import annotations

from worker_svc.core.faults.isolation import RunnerBrokenError


class GroupBrokenError(RunnerBrokenError):
    """A rank is gone or hangs, or ranks have done different things: the worker has to end, its requests go on elsewhere
    (RK4, RK5)."""


class StageFailedError(Exception):
    """Another stage of a pipeline has failed in a batch, and all have made the call: it may be tried again (RK14)."""
