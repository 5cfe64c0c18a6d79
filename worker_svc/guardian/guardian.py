"""The guardian process. It is forked before there are threads, grpc's among them, or a socket that listens.

A worker keeps the pid that it was started with, so that whoever knows that (a supervisor, a test) stops and kills the
worker: the guardian is its child, and goes when the worker has gone and that was told. Only where the worker would be
the first process of a container is it the other way round, as the end of the first process is the end of all: there the
guardian hands signals on, reaps, and ends as the worker did.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

from signalbox.protocol.enums import WorkerExit
from worker_svc.guardian.ending import Ending, exit_report
from worker_svc.guardian.step_watch import StepWatch
from worker_svc.guardian.telling import Ward, tell
from worker_svc.guardian.watching import is_stopped, status_of, watch

logger = logging.getLogger(__name__)
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
MAX_REASON_CHARS = 4000
"""Characters: fewer than a pipe takes at once."""


class ExitReport:
    """Tells the guardian how its worker ends: the worker's end of their pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        # Writes a few words, and where all threads were, when a signal like SIGSEGV ends the process.
        faulthandler.enable(pipe)

    def say(self, ending: Ending) -> None:
        """The process is about to end. Only the first report counts."""
        with suppress(OSError):  # nobody listens
            os.write(self._pipe, exit_report(Ending(ending.exit, ending.reason[:MAX_REASON_CHARS])))


def start(ward: Ward, *, is_parent: bool) -> ExitReport:
    """Forks, and returns in the worker only. is_parent: the guardian keeps our pid, not the worker. OSError, and no
    fork, where the system has no handles of processes."""
    worker = os.getpid()
    ours = os.pidfd_open(worker)
    reading, writing = os.pipe()
    gc.collect()
    gc.freeze()  # or the first collection of either process would copy what they share
    child = os.fork()
    if is_parent and child:
        os.close(writing)
        _guard_child(ward, child, reading)
    if not is_parent and not child:
        os.close(writing)
        _guard_parent(ward, worker, ours, reading)
    os.close(reading)
    os.close(ours)
    if is_parent:
        _prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    return ExitReport(writing)


def _prctl(option: int, argument: Any) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, argument)


# -- in the guardian --


def _guard_parent(ward: Ward, worker: int, pidfd: int, pipe: int) -> NoReturn:
    """The worker is our parent, and somebody else sees its status."""
    try:
        for number in HANDED_ON:
            signal.signal(number, signal.SIG_IGN)  # what a whole group is sent is the worker's to obey
        _prctl(PR_SET_NAME, b"guardian")
        watch_step = _step_watch(ward, worker, pidfd)
        _conclude(ward, watch(pipe, pidfd, lambda: status_of(worker, pidfd), watch_step.look))
    except BaseException:
        logger.exception("the guardian of %s failed", ward.worker_id)
    finally:
        os._exit(0)


def _guard_child(ward: Ward, worker: int, pipe: int) -> NoReturn:
    """The worker is our child."""
    statuses: dict[int, int] = {}

    def reap(*_: object) -> None:
        """Whatever has ended: the first process of a container inherits all orphans."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                statuses[ended[0]] = ended[1]

    def status() -> int | None:
        reap()
        return statuses.get(worker)

    try:
        pidfd = os.pidfd_open(worker)
        signal.signal(signal.SIGCHLD, reap)
        for number in HANDED_ON:
            signal.signal(number, lambda number, frame: os.kill(worker, number))
        _conclude(ward, watch(pipe, pidfd, status, _step_watch(ward, worker, pidfd).look))
    except BaseException:
        logger.exception("the guardian of %s failed", ward.worker_id)
    finally:
        _end_as(statuses.get(worker, 0))


def _step_watch(ward: Ward, worker: int, pidfd: int) -> StepWatch:
    def kill() -> None:
        with suppress(ProcessLookupError):  # it has just ended
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    return StepWatch(ward.mark, kill, lambda: is_stopped(worker))


def _conclude(ward: Ward, ending: Ending) -> None:
    if ending.details:
        print(ending.details, file=sys.stderr, flush=True)
    # Whoever ends in good order has said why.
    level = logging.DEBUG if ending.exit is WorkerExit.STOPPED else logging.INFO
    logger.log(level, "the worker %s: %s", ending.exit.name.lower(), ending.reason)
    tell(ward, ending)


def _end_as(status: int) -> NoReturn:
    """Ends with the status of another process, so that whoever waits for it sees the same."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)  # the first process of a container is spared its own signals
