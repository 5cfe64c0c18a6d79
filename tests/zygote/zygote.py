"""A zygote as the process sees it that starts processes by it."""

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
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from signalbox.runtime.cores import spin_count
from tests.zygote.order import Order, send_order
from tools import packages

ROOT = Path(__file__).parents[2]
PACKAGES = packages.PRODUCT
PADDING = "-" * 16384
"""Room for the command line of a fork, which is written over that of the zygote."""
_LIBRARIES = (
    "CUDA GLIBC GOMP GOTO GRPC HF HUGGINGFACE KMP LC LD MALLOC MKL NPY NUMPY NVPL OMP OPENBLAS PYTORCH"
)
_LIBRARIES += " TORCH TORCHINDUCTOR TRANSFORMERS TRITON"
_OTHERS = ("PYTHON", "LANG", "TZ", "HOME", "XDG_CACHE_HOME", "TMPDIR")
AT_IMPORT = (*(f"{name}_" for name in _LIBRARIES.split()), *_OTHERS)
"""Beginnings of variables that a library, the interpreter or the loader reads once: a process whose values differ from
the zygote's is started afresh. PYTHONPATH is looked at by itself."""
SET_BY_US = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": spin_count(), "GRPC_VERBOSITY": "NONE"}
"""Values that our services set for themselves: in a process that has imported their code they are there already."""
SET_BY_LIBRARIES = ("PYTHONPATH", "TORCHINDUCTOR_CACHE_DIR")
"""Looked at by itself; set to its default in any process that imports torch's compiler, as the tests do."""
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None)


class Zygote:
    """A child of this process, started when it is needed first. Any thread may start processes."""

    def __init__(self, environment: Mapping[str, str], control: socket.socket | None = None) -> None:
        """environment: what it is started with. control: its socket, where it runs already."""
        self._environment = dict(environment)
        self._at_import = _at_import(environment)
        self._control = control
        self._is_given = control is not None
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the zygote)
        self._asking = threading.Lock()
        self.num_forks = 0

    @property
    def pid(self) -> int | None:
        """None: it does not run, or somebody else has started it."""
        return self._process.pid if self._process else None

    def suits(self, environment: Mapping[str, str], cwd: str) -> bool:
        """Whether a fresh process would have imported the same code with the same settings."""
        path = [cwd, *environment.get("PYTHONPATH", "").split(os.pathsep)]
        found = (Path(entry, package) for entry in path if entry for package in PACKAGES)
        is_same_code = all(package.parent.samefile(ROOT) for package in found if package.is_dir())
        return is_same_code and _at_import(environment) == self._at_import

    def fork(self, order: Order, fds: list[int]) -> int | None:
        """Process id of a child of ours; None, with a warning: the zygote has ended. Raises RuntimeError when it has
        more than one thread."""
        with self._asking:
            if self._control is None:
                if self._is_given:
                    return None
                self._control = self._start()
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
        """Ends the zygote; its forks go on, and the next one would have a new zygote."""
        with self._asking:
            self._end()

    def _start(self) -> socket.socket:
        near, far = socket.socketpair()
        with closing(far):
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.zygote", str(far.fileno()), PADDING],
                cwd=ROOT,
                env=self._environment,
                pass_fds=[far.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
            )
        return near

    def _bury(self) -> None:
        status = self._end()
        self._log.seek(0)
        said = self._log.read().decode(errors="replace")[-2000:]
        warnings.warn(f"the zygote has ended ({status}), so a process starts afresh {said}", stacklevel=6)

    def _end(self) -> int | None:
        """Its status, if it is a child of ours."""
        if self._control is not None:
            self._control.close()
            self._control = None
        status = None
        if self._process is not None:
            status = self._process.wait()
            self._process = None
        return status


def _at_import(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that are read at import, but for those that have the values that any service gives them."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(AT_IMPORT) and name not in SET_BY_LIBRARIES and SET_BY_US.get(name) != value
    }
