"""The cores of this machine, and how many of them the model gets."""

from __future__ import annotations

import os


def count_cores() -> int:
    """How many cores we may use; a container may have fewer than the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_per_worker(num_workers: int = 1) -> int:
    """All cores but one, which the services need, shared out. Of two cores the model gets both: it is there that one
    less costs most, and steps of few tokens leave one alone anyway."""
    cores = count_cores()
    return max(1, (cores - 1 if cores > 2 else cores) // num_workers)
