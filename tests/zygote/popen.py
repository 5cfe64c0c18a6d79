"""Takes the place of `subprocess.Popen`: processes are forks of the zygote where that is as good as a fresh process."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, AnyStr

import psutil

from tests.zygote.order import Order
from tests.zygote.zygote import PACKAGES, PADDING, Zygote

NAME = "zygote"
"""In /proc, of the zygote beside a fork that starts services; it is a child of that, and no service."""
_START = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
_USUAL: dict[str, object] = {
    "executable": None,
    "preexec_fn": None,
    "close_fds": True,
    "shell": False,
    "restore_signals": True,
}
_USUAL |= {"gid": None, "gids": None, "uid": None, "umask": -1}

_zygote: Zygote | None = None
"""None: all processes are fresh."""


class Popen(subprocess.Popen[AnyStr]):
    """A `subprocess.Popen`; the process may be a fork, and is a child of ours in any case."""

    def _execute_child(self, *values: Any) -> None:
        given = _START.bind(self, *values).arguments
        pid = forked(given)
        if pid is None:
            super()._execute_child(*values)  # type: ignore[misc]
            return
        self.pid, self._child_created = pid, True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[end] for end in ends))  # type: ignore[attr-defined]


def forked(given: Mapping[str, Any]) -> int | None:
    """Process id of a fork; None: it has to be a fresh process. given: arguments of `Popen._execute_child`."""
    if _zygote is None or (order := order_of(given, _zygote)) is None:
        return None
    streams = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
    fds = [own if fd == -1 else fd for own, fd in enumerate(streams)]
    return _zygote.fork(order, [*fds, *order.pass_fds])


def order_of(given: Mapping[str, Any], zygote: Zygote) -> Order | None:
    """None: it has to be a fresh process."""
    if isinstance(given["args"], str | bytes | os.PathLike) or any(
        given[name] != usual for name, usual in _USUAL.items()
    ):
        return None
    command, death_signal = [os.fsdecode(word) for word in given["args"]], 0
    if command[:2] == ["setpriv", "--pdeathsig"]:
        death_signal, command = int(signal.Signals[f"SIG{command[2]}"]), command[3:]
    if command[1:2] == ["-P"]:  # what the zygote has imported did not come from a working directory of theirs
        del command[1]
    if command[:2] != [sys.executable, "-m"] or command[2].partition(".")[0] not in PACKAGES:
        return None
    variables = os.environ if given["env"] is None else given["env"]
    environment = {os.fsdecode(name): os.fsdecode(value) for name, value in variables.items()}
    cwd = os.path.realpath(os.fsdecode(given["cwd"] or "."))
    if not Path(cwd).is_dir() or sum(map(len, command)) > len(PADDING) // 4:
        return None
    if not zygote.suits(environment, cwd):
        return None
    group = -1 if given["process_group"] is None else given["process_group"]
    is_leader = bool(given["start_new_session"])
    return Order(command, environment, cwd, is_leader, group, death_signal, sorted(given["pass_fds"]))


def install(zygote: Zygote | None) -> None:
    """From now on `subprocess.Popen` starts forks of it; None: fresh processes only."""
    global _zygote  # noqa: PLW0603
    _zygote = zygote
    subprocess.Popen = Popen  # type: ignore[misc]


@contextmanager
def fresh() -> Iterator[None]:
    """Processes that are started in the block are fresh ones."""
    before = _zygote
    install(None)
    try:
        yield
    finally:
        install(before)


def children_of(pid: int, *, recursive: bool = False) -> list[psutil.Process]:
    """Child processes of `pid`, without its zygote and those that have ended meanwhile."""
    return [child for child in psutil.Process(pid).children(recursive=recursive) if _is_service(child)]


def _is_service(child: psutil.Process) -> bool:
    try:
        return child.name() != NAME
    except psutil.NoSuchProcess:
        return False
