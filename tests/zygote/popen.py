"""Starts processes: forks of the zygote where that is as good as a fresh process."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, AnyStr

import psutil

from tests.zygote.order import Order, send_order

ROOT = Path(__file__).parents[2]
PACKAGES = ("frontend_svc", "scheduler_svc", "signalbox", "worker_svc")
AT_IMPORT = ("PYTHON", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "NVPL_", "GRPC_", "TORCH", "PYTORCH_")
AT_IMPORT += ("HF_", "HUGGINGFACE_", "TRANSFORMERS_", "CUDA_", "TRITON_", "LD_", "MALLOC_", "GLIBC_", "NUMPY_", "NPY_")
AT_IMPORT += ("LC_", "LANG", "TZ", "HOME", "XDG_CACHE_HOME", "TMPDIR")
"""Beginnings of variables that a library, the interpreter or the loader reads once: a process whose values differ from
the zygote's is started afresh. PYTHONPATH is looked at by itself."""
NAME = "zygote"
"""In /proc, of the zygote beside a fork that starts services; it is a child of that, and no service."""
PADDING = "-" * 16384
"""Room for the command line of a fork, which is written over that of the zygote."""
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Zygote:
    """The near end of a zygote, a child of this process. Any thread may start processes."""

    def __init__(self, environment: Mapping[str, str], control: socket.socket | None = None) -> None:
        """environment: what it was started with. control: where it listens; None: it is started when it is needed."""
        self._control = control
        self._environment = _at_import(environment)
        self._started_with = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile() if control is None else None  # noqa: SIM115
        self._asking = threading.Lock()
        self.num_forks = 0

    def suits(self, environment: Mapping[str, str], cwd: str) -> bool:
        """Whether a fresh process would have imported the same code with the same settings."""
        if _at_import(environment) != self._environment:
            return False
        path = [cwd, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
        others = (Path(cwd, entry, package) for entry in path for package in PACKAGES)
        return all(other.parent.samefile(ROOT) for other in others if other.is_dir())

    def fork(self, order: Order, fds: list[int]) -> int | None:
        """Process id of a child of ours; None, with a warning: the zygote has ended. Raises RuntimeError when it has
        more than one thread."""
        assert _LIBC is not None
        with self._asking:
            self._control = self._control or self._start()
            _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                send_order(self._control, order, fds)
                answer = json.loads(self._control.recv(4096) or b"{}")
            except OSError:
                answer = {}
            finally:
                _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
            if not answer:
                self._bury()
                return None
            self.num_forks += 1
        if "refused" in answer:
            raise RuntimeError(answer["refused"])
        return int(answer["pid"])

    def close(self) -> None:
        """Ends the zygote; its forks go on."""
        with self._asking:
            if self._control is not None:
                self._control.close()
                self._control = None
            if self._process is not None:
                self._process.wait()
                self._process = None

    def _start(self) -> socket.socket:
        near, far = socket.socketpair()
        with closing(far):
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.zygote", str(far.fileno()), PADDING],
                cwd=ROOT,
                env=self._started_with,
                pass_fds=[far.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
            )
        return near

    def _bury(self) -> None:
        """The next process is tried with a new one."""
        assert self._control is not None
        self._control.close()
        status, said = "unknown", ""
        if self._process is not None:
            self._control = None
            status = str(self._process.wait())
        if self._log is not None:
            self._log.seek(0)
            said = self._log.read().decode(errors="replace")[-2000:]
        warnings.warn(f"the zygote has ended with status {status}, a process starts afresh: {said}", stacklevel=2)


def _at_import(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(AT_IMPORT) and name != "PYTHONPATH"
    }


_zygote: Zygote | None = None
"""None: all processes are fresh."""


class Popen(subprocess.Popen[AnyStr]):
    """A `subprocess.Popen`; the process may be a fork."""

    def _execute_child(  # noqa: PLR0913, PLR0917
        self,
        args: Any,
        executable: Any,
        preexec_fn: Any,
        close_fds: bool,  # noqa: FBT001
        pass_fds: Any,
        cwd: Any,
        env: Any,
        startupinfo: Any,
        creationflags: int,
        shell: bool,  # noqa: FBT001
        p2cread: int,
        p2cwrite: int,
        c2pread: int,
        c2pwrite: int,
        errread: int,
        errwrite: int,
        *rest: Any,
    ) -> None:
        restore_signals, gid, gids, uid, umask, new_session, process_group = rest
        plain = close_fds and restore_signals and umask == -1 and executable is None
        if plain and preexec_fn is gid is gids is uid is None and not shell:
            order = _order(args, env, cwd, pass_fds, new_session, process_group)
            streams = [given if given != -1 else own for own, given in enumerate((p2cread, c2pwrite, errwrite))]
            pid = order and _zygote and _zygote.fork(order, [*streams, *order.pass_fds])
            if pid:
                self.pid, self._child_created = pid, True
                self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]
                return
        super()._execute_child(  # type: ignore[misc]
            args,
            executable,
            preexec_fn,
            close_fds,
            pass_fds,
            cwd,
            env,
            startupinfo,
            creationflags,
            shell,
            p2cread,
            p2cwrite,
            c2pread,
            c2pwrite,
            errread,
            errwrite,
            *rest,
        )


def _order(
    args: Any, env: Any, cwd: Any, pass_fds: Any, new_session: bool, process_group: Any  # noqa: FBT001
) -> Order | None:
    """None: it has to be a fresh process."""
    if _zygote is None or isinstance(args, str | bytes | os.PathLike):
        return None
    command = [os.fsdecode(word) for word in args]
    if len(command) < 3 or command[0] != sys.executable or command[1] != "-m":
        return None
    environment = {os.fsdecode(name): os.fsdecode(value) for name, value in (env or os.environ).items()}
    folder = os.path.realpath(os.fsdecode(cwd or "."))
    is_ours = command[2].partition(".")[0] in PACKAGES and len("\0".join(command)) < len(PADDING)
    if not (is_ours and Path(folder).is_dir() and _zygote.suits(environment, folder)):
        return None
    group = -1 if process_group is None else process_group
    return Order(command, environment, folder, bool(new_session), group, sorted(pass_fds))


def install(zygote: Zygote | None) -> None:
    """From now on `subprocess.Popen` starts forks of it; None: fresh processes only."""
    global _zygote  # noqa: PLW0603
    _zygote = zygote
    subprocess.Popen = Popen  # type: ignore[misc]


@contextmanager
def fresh() -> Iterator[None]:
    """Processes that are started in the block are fresh ones."""
    global _zygote  # noqa: PLW0603
    before, _zygote = _zygote, None
    try:
        yield
    finally:
        _zygote = before


def children_of(pid: int, *, recursive: bool = False) -> list[psutil.Process]:
    """Those that the process has started; a zygote beside it is none of them."""
    return [child for child in psutil.Process(pid).children(recursive=recursive) if child.name() != NAME]
