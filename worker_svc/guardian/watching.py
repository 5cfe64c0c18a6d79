"""Waits for the end of a process. Whatever it leaves behind comes through a pipe that it holds the other end of."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import time
from collections.abc import Callable
from pathlib import Path

from worker_svc.guardian.ending import Ending, count_oom_kills, judge
from worker_svc.guardian.step_age import LOOK_S

COUNT_S = 5.0
"""How old the count of kills for want of memory may be that a later one is compared with."""
KILL_S = 1.0
"""How long a process that was killed is waited for: one that waits for a device may take for ever."""
MAX_REPORT_BYTES = 1 << 16
PF_EXITING = 0x4
PIDFD_GET_INFO, PIDFD_INFO_EXIT = 0xC040FF0B, 1 << 3
"""Linux 6.15 (include/uapi/linux/pidfd.h): the status of a process that may have been reaped already."""


def watch(
    pipe: int,
    pidfd: int,
    read_status: Callable[[], int | None],
    look: Callable[[float], Ending | None] = lambda now: None,
) -> Ending:
    """Waits until the process of `pidfd` ends; returns how. pipe: what it writes there is kept, the last of it.
    read_status: its status as from `os.waitpid` once it has ended, None where it cannot be had. look: is called every
    LOOK_S; when it returns an end it has killed the process, which may still take its time."""
    poller, heard, status = select.poll(), b"", None
    poller.register(pipe, select.POLLIN)
    poller.register(pidfd, select.POLLIN)
    num_kills, counted_at = count_oom_kills(), time.monotonic()
    while True:
        ready = dict(poller.poll(LOOK_S * 1e3))
        now = time.monotonic()
        if pipe in ready:
            part = os.read(pipe, MAX_REPORT_BYTES)
            heard = (heard + part)[-MAX_REPORT_BYTES:]
            if part:
                continue
            # Closed: the process is ending, or some code of it closes what it does not know.
            poller.unregister(pipe)
            status = read_status()
        if pidfd in ready:
            status = status if status is not None else read_status()
            return judge(heard, status, is_out_of_memory=count_oom_kills() > num_kills)
        if (ending := look(now)) is not None:
            select.select([pidfd], [], [], KILL_S)
            return ending
        if now - counted_at >= COUNT_S:
            num_kills, counted_at = count_oom_kills(), now


def status_of(pid: int, pidfd: int) -> int | None:
    """The status of a process that is not our child, once it is ending; None: it cannot be seen, or it lives."""
    status = _status_by_pidfd(pidfd)
    return status if status is not None else _status_in_proc(pid)


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped, or is being traced."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "tT"
    except OSError:
        return False


def _status_by_pidfd(pidfd: int) -> int | None:
    info = bytearray(struct.pack("Q56x", PIDFD_INFO_EXIT))
    try:
        fcntl.ioctl(pidfd, PIDFD_GET_INFO, info)
    except OSError:
        return None
    mask, status = struct.unpack("Q52xi", info)
    return status if mask & PIDFD_INFO_EXIT else None


def _status_in_proc(pid: int) -> int | None:
    """The status that /proc has, until the parent has reaped the process; None: it cannot be seen."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    flags, status = int(fields[6]), int(fields[49])
    return status if flags & PF_EXITING else None
