"""What a guardian makes of what a worker leaves behind (E2)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from signalbox.errors import StartupError
from worker_svc.core.faults.unfit import UnfitError
from worker_svc.guardian.ending import Ending, Exit, count_oom_kills, judge, last_words
from worker_svc.guardian.guarded import ending_of

SEGV = b"Fatal Python error: Segmentation fault\n\nThread 0x1 (most recent call first):\n"


@pytest.mark.parametrize(
    ("words", "status", "is_out_of_memory", "exit_", "text"),
    [
        (b"", 0, False, Exit.STOPPED, "status 0"),
        (b"", 3 << 8, False, Exit.CRASHED, "status 3"),
        (b"", int(signal.SIGKILL), False, Exit.KILLED, "SIGKILL"),
        (b"", int(signal.SIGTERM), False, Exit.KILLED, "SIGTERM"),
        (b"", int(signal.SIGSEGV), False, Exit.CRASHED, "SIGSEGV"),
        (b"", int(signal.SIGABRT) | 0x80, False, Exit.CRASHED, "SIGABRT"),
        (b"", None, False, Exit.KILLED, "killed"),
        (b"", int(signal.SIGKILL), True, Exit.CRASHED, "want of memory"),
        (b"", None, True, Exit.CRASHED, "want of memory"),
        (b"", int(signal.SIGTERM), True, Exit.KILLED, "SIGTERM"),
        (SEGV, None, False, Exit.CRASHED, "Segmentation fault"),
    ],
)
def test_an_ending_is_judged(
    words: bytes, status: int | None, is_out_of_memory: bool, exit_: Exit, text: str
) -> None:
    ending = judge(words, status, is_out_of_memory)
    assert ending.exit is exit_ and text in ending.reason and "\n" not in ending.reason


def test_the_first_last_words_count() -> None:
    """A process that ends in good order may still crash while its libraries are taken down."""
    said = last_words(Ending(Exit.STOPPED, "as it\nwas told"))
    assert judge(said + SEGV, int(signal.SIGSEGV), False) == Ending(Exit.STOPPED, "as it was told")
    assert judge(said + last_words(Ending(Exit.CRASHED, "x")), 0, False).exit is Exit.STOPPED


def test_where_all_threads_were_is_kept_for_the_log() -> None:
    assert judge(SEGV, None, False).details == SEGV.decode()


@pytest.mark.parametrize(
    ("error", "exit_"),
    [
        (RuntimeError("device-side assert"), Exit.CRASHED),
        (StartupError("no such model"), Exit.STOPPED),
        (UnfitError("NaN"), Exit.STOPPED),
    ],
)
def test_what_nobody_foresaw_may_be_the_doing_of_a_request(error: Exception, exit_: Exit) -> None:
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
