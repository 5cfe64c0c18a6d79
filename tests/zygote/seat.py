"""What makes a fork of the zygote as `python -m` is before its first line runs."""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import os
import random
import runpy
import signal
import sys
import tempfile
import types
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from tests.loop_watch.watch import install_if_asked
from tests.zygote.command_line import CommandLine
from tests.zygote.order import Order

_PR_SET_PDEATHSIG = 1


class Seat:
    """What forks take over from the zygote as it was started. To be made before anything is imported, for what is to
    be the last at exit."""

    def __init__(self) -> None:
        self.command_line = CommandLine()
        self._name = Path("/proc/self/comm").read_bytes().rstrip(b"\n")
        self._interrupt = signal.getsignal(signal.SIGINT)
        self._path = sys.path[1 + len(_entries(os.environ)) :]
        self._status: int | None = None
        self._is_interrupted = False
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever asks
        atexit.register(self._leave)

    def take(self, order: Order, fds: Sequence[int]) -> None:
        """fds: of the order, in this process. All others are closed."""
        if order.new_session:
            os.setsid()
        elif order.process_group >= 0:
            os.setpgid(0, order.process_group)
        signal.signal(signal.SIGINT, self._interrupt)
        if order.death_signal:
            die_with_parent(order.death_signal)
        place(fds, [0, 1, 2, *order.pass_fds])
        for stream, fd in ((sys.stdout, 1), (sys.stderr, 2)):
            if os.isatty(fd):
                stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        os.environ.clear()
        os.environ.update(order.environment)
        os.chdir(order.cwd)
        sys.path[:] = [order.cwd, *_entries(order.environment), *self._path]
        sys.argv[:] = ["-m", *order.command[3:]]
        sys.orig_argv[:] = order.command
        self.command_line.write(order.command, self._name)
        _seed()

    def run(self, module: str) -> NoReturn:
        """Runs it as the interpreter does. Raises what it raises, and SystemExit at its end."""
        install_if_asked(module)
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        main.__builtins__ = __builtins__  # type: ignore[attr-defined]
        for name in (module, f"{module}.__main__"):
            if not hasattr(sys.modules.get(name), "__path__"):
                sys.modules.pop(name, None)
        try:
            runpy._run_module_as_main(module)  # type: ignore[attr-defined]
            raise SystemExit
        except SystemExit as error:
            self._status = error.code if isinstance(error.code, int) else int(error.code is not None)
            raise
        except KeyboardInterrupt:
            self._is_interrupted = True
            raise
        except BaseException:
            self._status = 1
            raise

    def _leave(self) -> None:
        """The last that is done at exit: to take a million objects apart one by one is a third of a second."""
        if self._status is None and not self._is_interrupted:
            return
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        if self._status is None:  # it ends by the signal, as the interpreter would have it
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        os._exit((self._status or 0) & 0xFF)


def die_with_parent(number: int) -> None:
    """Has the kernel send us that signal when our parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def place(fds: Sequence[int], numbers: Sequence[int]) -> None:
    """Gives the descriptors these numbers, and closes all others."""
    above = max(numbers) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in fds]
    for fd, number in zip(moved, numbers, strict=True):
        os.dup2(fd, number)
    first = 0
    for number in sorted(set(numbers)):
        if first < number:  # an empty range is taken for all
            os.closerange(first, number)
        first = number + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _entries(environment: os._Environ[str] | dict[str, str]) -> list[str]:
    return [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]


def _seed() -> None:
    """From the system, as at import."""
    random.seed()
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()
    tempfile.tempdir = None
