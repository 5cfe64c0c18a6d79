"""Processor time of other processes, for what benches spend in services."""

from __future__ import annotations

import time

_CPUCLOCK_SCHED = 2


def process_time_of(pid: int) -> float:
    """User and system time of a process with all its threads so far, in seconds and to the nanosecond: /proc counts in
    ticks of 10 ms, which is more than a short batch takes. The clock's number is the kernel's for a process
    (clock_getcpuclockid(3)). Raises OSError where there is no such process, or no such clock: the kernel is not Linux.
    """
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)
