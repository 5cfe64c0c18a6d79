"""Forks of the zygote: as fresh processes, and children of whoever starts them."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from signalbox.cli.ring.ring import DEMO_MODEL
from tests.zygote import popen
from tests.zygote.forks import serve
from tests.zygote.order import Order, send_order
from tests.zygote.zygote import PACKAGES, ROOT, Zygote

PROBE = [sys.executable, "-m", "tests.zygote.probe"]
WAYS = ["at once", "with a thread", "with words", "with a status", "with an error", "interrupted", "killed"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are fresh ones elsewhere")


@pytest.fixture
def zygote(monkeypatch: pytest.MonkeyPatch) -> Iterator[Zygote]:
    """That of this session, for probes too; with `--fresh` one of the test's own."""
    monkeypatch.setattr(popen, "PACKAGES", (*PACKAGES, "tests"))
    before, zygote = popen._zygote, popen._zygote or Zygote(os.environ)
    popen.install(zygote)
    yield zygote
    popen.install(before)
    if before is None:
        zygote.close()


def run(*words: str, is_fork: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    with contextlib.nullcontext() if is_fork else popen.fresh():
        return subprocess.run(
            [*PROBE, *words], capture_output=True, text=True, timeout=60, check=False, **options
        )


@pytest.mark.parametrize("is_leader", [False, True])
def test_a_fork_is_as_a_fresh_process(zygote: Zygote, tmp_path: Path, is_leader: bool) -> None:
    """What it knows of itself; descriptors that were not passed are not there."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PROBE": "é\udcff"}
    del environment["PATH"]
    with (tmp_path / "passed").open("w") as passed, (tmp_path / "not").open("w") as other:
        os.set_inheritable(other.fileno(), True)
        options = {
            "cwd": tmp_path,
            "env": environment,
            "pass_fds": [passed.fileno()],
            "start_new_session": is_leader,
            "stdin": subprocess.DEVNULL,
        }
        seen = []
        for is_fork in (True, False):
            num_forks = zygote.num_forks
            done = run(is_fork=is_fork, **options)
            assert done.returncode == 0, done.stderr
            assert zygote.num_forks - num_forks == is_fork
            seen.append(json.loads(done.stdout))
    for description in seen:
        assert description["files"].pop("1").startswith("pipe:")
        assert description["files"].pop("2").startswith("pipe:")
    assert seen[0] == seen[1]
    assert len(seen[0]["files"]) == 2  # stdin, and what was passed


@pytest.mark.parametrize("way", WAYS)
def test_a_fork_ends_as_a_fresh_process(zygote: Zygote, way: str) -> None:
    """Status, signal and last words; the frames below a traceback's first are those of the module."""
    fork, fresh = (run(way, is_fork=is_fork) for is_fork in (True, False))
    assert (fork.returncode, fork.stdout) == (fresh.returncode, fresh.stdout), fork.stderr
    assert fork.stderr.splitlines()[-3:] == fresh.stderr.splitlines()[-3:]


def test_no_collection_of_a_fork_walks_over_what_it_shares(zygote: Zygote) -> None:
    """Not after a worker's guardian has forked either: it would copy all of it, a second of a core."""
    subprocess.run(
        [sys.executable, "-m", "worker_svc", "--help"], capture_output=True, check=True, timeout=100
    )
    found = json.loads(run("guarded").stdout)
    assert found["set aside"] > 50 * found["collected over"], found


def test_forks_draw_other_numbers(zygote: Zygote) -> None:
    """The generators of Python, numpy and torch are seeded by the system, as at import."""
    subprocess.run(
        [sys.executable, "-m", "worker_svc", "--help"], capture_output=True, check=True, timeout=100
    )
    numbers = [number for _ in range(2) for number in json.loads(run("draws").stdout)]
    assert len(set(numbers)) == 6


def test_ranks_are_forks_of_a_zygote_beside_their_worker(zygote: Zygote) -> None:
    """A fresh rank would take three seconds of a core to load its libraries, and have its variables in /proc."""
    command = [sys.executable, "-m", "worker_svc", "--scheduler=127.0.0.1:1", "--listen=127.0.0.1:0"]
    command += ["--worker-id=w", f"--model={DEMO_MODEL}", "--num-blocks=64", "--threads=1"]
    command += ["--tensor-parallel=2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as worker:
        assert worker.stdout is not None
        assert any(" loaded in " in line for line in worker.stdout)
        names = [child.name() for child in psutil.Process(worker.pid).children()]
        ranks = [child for child in popen.children_of(worker.pid) if "worker_svc.ranks" in child.cmdline()]
        variables = [rank.environ() for rank in ranks]
        worker.terminate()
    assert popen.NAME in names
    assert len(ranks) == 1
    assert "TOKENIZERS_PARALLELISM" not in variables[0]
    assert not psutil.wait_procs(ranks, timeout=30)[1]


def test_a_fork_is_our_child(zygote: Zygote) -> None:
    """The starting process finds it among its children, can send it signals, and gets its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with subprocess.Popen([*PROBE, "with a thread"], stdout=subprocess.PIPE) as process:
        assert psutil.Process(process.pid) in psutil.Process().children()
        assert process.communicate()[0] == b"thread\nat exit\n"
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime > before
    assert not psutil.pid_exists(process.pid)


def test_the_zygote_has_one_thread_and_one_open_file(zygote: Zygote) -> None:
    """Also after it has imported all, and has forked: a pool's threads would be missing in forks."""
    subprocess.run(
        [sys.executable, "-m", "worker_svc", "--help"], capture_output=True, check=True, timeout=100
    )
    assert len(list(Path(f"/proc/{zygote.pid}/task").iterdir())) == 1
    files = [path.readlink().name for path in Path(f"/proc/{zygote.pid}/fd").iterdir() if int(path.name) > 2]
    assert len(files) == 1
    assert files[0].startswith("socket:")


def test_with_a_second_thread_it_refuses() -> None:
    near, far = socket.socketpair()
    stop = threading.Event()
    threading.Thread(target=stop.wait, daemon=True).start()
    with far, near:
        send_order(near, Order(PROBE, {}, "/", False, -1, 0, []), [0, 1, 2])
        near.shutdown(socket.SHUT_WR)
        assert serve(SimpleNamespace(prepare=lambda order: None), far) is None  # type: ignore[arg-type]
        assert "threads" in json.loads(near.recv(4096))["refused"]
    stop.set()


@pytest.mark.parametrize(
    "options",
    [
        {"env": os.environ | {"OMP_NUM_THREADS": "3"}},
        {"env": os.environ | {"HOME": "/nowhere"}},
        {"preexec_fn": os.getpid},
        {"umask": 0o077},
    ],
)
def test_what_a_fork_cannot_show_is_started_afresh(zygote: Zygote, options: dict[str, Any]) -> None:
    num_forks = zygote.num_forks
    assert run("at once", **options).returncode == 0
    assert zygote.num_forks == num_forks


def test_other_code_is_started_afresh(zygote: Zygote, tmp_path: Path) -> None:
    """`python -m` finds packages in the working directory first, then in PYTHONPATH."""
    (tmp_path / "worker_svc").mkdir()
    assert zygote.suits(os.environ, str(tmp_path.parent))
    assert not zygote.suits(os.environ, str(tmp_path))
    assert not zygote.suits(os.environ | {"PYTHONPATH": f"{ROOT}:{tmp_path}"}, str(ROOT))


@pytest.mark.fresh
def test_a_test_that_is_marked_starts_fresh_processes() -> None:
    assert popen._zygote is None


def test_a_process_starts_without_the_zygote_when_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, and the next process has a new one."""
    monkeypatch.setattr(popen, "PACKAGES", (*PACKAGES, "tests"))
    zygote, before = Zygote(os.environ), popen._zygote
    popen.install(zygote)
    try:
        assert run("with a status").returncode == 3
        assert zygote.pid is not None
        os.kill(zygote.pid, signal.SIGKILL)
        with pytest.warns(UserWarning, match="the zygote has ended"):
            assert run("with a status").returncode == 3
        assert (run("with a status").returncode, zygote.num_forks) == (3, 2)
    finally:
        popen.install(before)
        zygote.close()
