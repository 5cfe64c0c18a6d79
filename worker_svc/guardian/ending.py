"""How a process ended, judged from what it left behind: its exit report, its status, and the memory of its machine."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from signalbox.protocol.enums import WorkerExit

END = b"\nsignalbox ends: "
FATAL = b"Fatal Python error: "
"""How Python's faulthandler begins what it writes about a signal like SIGSEGV."""
OWN_SIGNALS = {
    signal.SIGSEGV,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGSYS,
    signal.SIGTRAP,
}
"""A process gets them for what it did itself."""


@dataclass(frozen=True)
class Ending:
    """How a process ended, and that in words."""

    exit: WorkerExit
    reason: str
    details: str = ""
    """Where all threads were, for a log; empty: not known."""


def hung(step_id: int, limit_s: float) -> Ending:
    """The end of a process whose step was over its limit: as of a crash, whoever had a row in it may be the cause."""
    return Ending(WorkerExit.CRASHED, f"its step {step_id} hung: it ran for more than {limit_s:.1f} s")


def exit_report(ending: Ending) -> bytes:
    """What a process writes to its guardian when it is about to end."""
    reason = ending.reason.replace("\n", " ")
    return END + f"{ending.exit.name} {reason}\n".encode()


def judge(report: bytes, status: int | None, is_out_of_memory: bool) -> Ending:
    """report: what the process wrote. status: as from `os.waitpid`; None: it could not be seen. is_out_of_memory: the
    kernel has just killed somebody for want of memory."""
    _, has_ended, text = report.partition(END)
    if has_ended:
        name, _, reason = text.partition(b"\n")[0].decode(errors="replace").partition(" ")
        return Ending(WorkerExit[name], reason)
    if FATAL in report:
        details = report[report.rindex(FATAL) :].decode(errors="replace")
        return Ending(WorkerExit.CRASHED, details.partition("\n")[0], details)
    if is_out_of_memory and (status is None or status == signal.SIGKILL):
        return Ending(WorkerExit.CRASHED, "it was killed for want of memory")
    if status is None:
        return Ending(WorkerExit.KILLED, "it was killed")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        is_own = number in OWN_SIGNALS
        return Ending(
            WorkerExit.CRASHED if is_own else WorkerExit.KILLED,
            f"it was ended by {signal.Signals(number).name}",
        )
    code = os.waitstatus_to_exitcode(status)
    return Ending(WorkerExit.CRASHED if code else WorkerExit.STOPPED, f"it ended with status {code}")


def count_oom_kills(root: Path = Path("/")) -> int:
    """How often the kernel has killed for want of memory: in this process's group of processes, or where that is not
    counted, on the whole machine. 0 where nobody knows."""
    for path in _oom_counters(root):
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return 0


def _oom_counters(root: Path) -> list[Path]:
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        groups = []
    paths = [line.partition("::")[2].lstrip("/") for line in groups if line.startswith("0::")]
    counted = [root / "sys/fs/cgroup" / path / "memory.events" for path in paths]
    return [*counted, root / "proc/vmstat"]
