"""What a guardian makes of what a worker leaves behind (E2)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from signalbox.errors import StartupError
from signalbox.protocol.enums import WorkerExit
from worker_svc.core.faults.unfit import UnfitError
from worker_svc.guardian.ending import Ending, count_oom_kills, exit_report, judge
from worker_svc.guardian.guarded import ending_of

SEGV = b"Fatal Python error: Segmentation fault\n\nThread 0x1 (most recent call first):\n"


@pytest.mark.parametrize(
    ("words", "status", "is_out_of_memory", "exit_", "text"),
    [
        (b"", 0, False, WorkerExit.STOPPED, "status 0"),
        (b"", 3 << 8, False, WorkerExit.CRASHED, "status 3"),
        (b"", int(signal.SIGKILL), False, WorkerExit.KILLED, "SIGKILL"),
        (b"", int(signal.SIGTERM), False, WorkerExit.KILLED, "SIGTERM"),
        (b"", int(signal.SIGSEGV), False, WorkerExit.CRASHED, "SIGSEGV"),
        (b"", int(signal.SIGABRT) | 0x80, False, WorkerExit.CRASHED, "SIGABRT"),
        (b"", None, False, WorkerExit.KILLED, "killed"),
        (b"", int(signal.SIGKILL), True, WorkerExit.CRASHED, "want of memory"),
        (b"", None, True, WorkerExit.CRASHED, "want of memory"),
        (b"", int(signal.SIGTERM), True, WorkerExit.KILLED, "SIGTERM"),
        (SEGV, None, False, WorkerExit.CRASHED, "Segmentation fault"),
    ],
)
def test_an_ending_is_judged(
    words: bytes, status: int | None, is_out_of_memory: bool, exit_: WorkerExit, text: str
) -> None:
    ending = judge(words, status, is_out_of_memory)
    assert ending.exit is exit_ and text in ending.reason and "\n" not in ending.reason


def test_the_first_exit_report_counts() -> None:
    """A process that ends in good order may still crash while its libraries are taken down."""
    said = exit_report(Ending(WorkerExit.STOPPED, "as it\nwas told"))
    assert judge(said + SEGV, int(signal.SIGSEGV), False) == Ending(WorkerExit.STOPPED, "as it was told")
    assert judge(said + exit_report(Ending(WorkerExit.CRASHED, "x")), 0, False).exit is WorkerExit.STOPPED


def test_where_all_threads_were_is_kept_for_the_log() -> None:
    assert judge(SEGV, None, False).details == SEGV.decode()


@pytest.mark.parametrize(
    ("error", "exit_"),
    [
        (RuntimeError("device-side assert"), WorkerExit.CRASHED),
        (StartupError("no such model"), WorkerExit.STOPPED),
        (UnfitError("NaN"), WorkerExit.STOPPED),
    ],
)
def test_what_nobody_foresaw_may_be_the_doing_of_a_request(error: Exception, exit_: WorkerExit) -> None:
    assert ending_of(error).exit is exit_


def test_kills_for_want_of_memory_are_counted_in_the_group_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/vmstat").write_text("nr_free_pages 5\noom_kill 7\n")
    assert count_oom_kills(tmp_path) == 7
    (tmp_path / "proc/self/cgroup").write_text("0::/pods/one\n")
    assert count_oom_kills(tmp_path) == 7, "the group counts nothing"
    group = tmp_path / "sys/fs/cgroup/pods/one"
    group.mkdir(parents=True)
    (group / "memory.events").write_text("low 0\noom 2\noom_kill 2\n")
    assert count_oom_kills(tmp_path) == 2
    assert count_oom_kills(tmp_path / "nowhere") == 0
