"""`signalbox ps` and `signalbox logs`: rings find out of each other by their files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from signalbox.cli.commands.machine.ps import duration
from signalbox.cli.main import main
from signalbox.cli.ring.registry import RunningRing, list_rings, registered, rings_dir

Capture = pytest.CaptureFixture[str]
HOLDER = """
import json, sys, time
from signalbox.cli.ring.registry import RunningRing, registered
with registered(RunningRing(**json.loads(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(100)
"""


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunningRing:
    """A ring that is not listed yet, with two logs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "scheduler.log").write_text("listening\n")
    (logs / "worker-0.log").write_text("".join(f"line {number}\n" for number in range(30)))
    return RunningRing(
        os.getpid(), "demo", "127.0.0.1:8000", "127.0.0.1:7301", "127.0.0.1:7300", 1, str(logs), time.time()
    )


def hold(ring: RunningRing) -> subprocess.Popen[str]:
    """Another process that is listed as that ring."""
    command = [sys.executable, "-c", HOLDER, json.dumps(asdict(ring))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "held\n"
    return process


def test_a_ring_is_listed_while_it_runs(ring: RunningRing, capsys: Capture) -> None:
    assert main(["ps"]) == 0
    assert capsys.readouterr().out == "no ring runs here; start one: signalbox up\n"
    with registered(ring):
        assert list_rings() == [ring]
        assert main(["ps"]) == 0
        assert f"{ring.pid}  demo   http://127.0.0.1:8000/v1" in capsys.readouterr().out
    assert list_rings() == []


def test_a_ring_that_was_killed_is_not_listed(ring: RunningRing) -> None:
    process = hold(ring)
    assert list_rings() == [ring]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert list_rings() == []
    assert list(rings_dir().iterdir()) == []


def test_a_ring_runs_where_nothing_can_be_written(
    ring: RunningRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with registered(ring):
        assert list_rings() == []


def test_a_ring_runs_where_the_disk_is_full(ring: RunningRing) -> None:
    rings_dir().mkdir(parents=True)
    (rings_dir() / f"{ring.pid}.json").symlink_to("/dev/full")
    with registered(ring):
        pass


def test_logs_are_those_of_the_only_ring(ring: RunningRing, capsys: Capture) -> None:
    assert main(["logs"]) == 1
    assert capsys.readouterr().err == "signalbox: no ring runs here\n"
    with registered(ring):
        assert main(["logs", "-n", "2"]) == 0
        assert capsys.readouterr().out.splitlines() == [
            *("scheduler | listening", "worker-0  | line 28", "worker-0  | line 29")
        ]
        assert main(["logs", "worker-0", "-n", "1"]) == 0
        assert capsys.readouterr().out == "line 29\n"
        assert main(["logs", "worker-1"]) == 1
        assert "no service is called worker-1; there is scheduler, worker-0" in capsys.readouterr().err


def test_a_long_log_is_read_from_its_end(ring: RunningRing, capsys: Capture) -> None:
    """And its last line is told, though it has no end."""
    lines = [f"line {number} x" + "x" * (number % 700) for number in range(3000)]
    (Path(ring.log_dir) / "worker-0.log").write_text("\n".join(lines))
    with registered(ring):
        for count in (1, 5, 1000, 4000):
            assert main(["logs", "worker-0", "-n", str(count)]) == 0
            told = capsys.readouterr().out.splitlines()
            assert told == lines[-count:]


def test_of_several_rings_one_is_named(ring: RunningRing, capsys: Capture) -> None:
    other = hold(replace(ring, pid=1, started_at=1.0))
    with registered(ring):
        assert main(["logs"]) == 1
        assert capsys.readouterr().err == (
            f"signalbox: several rings run here; name one with --pid: 1, {ring.pid}\n"
        )
        assert main(["logs", "scheduler", "--pid", str(ring.pid)]) == 0
    other.kill()
    other.communicate()


def test_following_ends_with_the_ring_and_misses_no_line(ring: RunningRing) -> None:
    holder = hold(ring)
    command = [sys.executable, "-m", "signalbox", "logs", "scheduler", "-f"]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert follower.stdout and follower.stdout.readline() == "listening\n"
    with (Path(ring.log_dir) / "scheduler.log").open("a") as log:
        log.write("first ")
        log.flush()
        log.write("line\nlast line\n")
    holder.kill()
    holder.communicate()
    assert follower.communicate(timeout=30)[0] == "first line\nlast line\n"
    assert follower.returncode == 0


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.9, "4 s"), (1204, "20 min 4 s"), (12_000, "3 h 20 min"), (183_600, "2 d 3 h")]
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("shell", "check"), [("bash", "bash -n"), ("zsh", None)])
def test_a_shell_completes_commands_and_their_options(
    shell: str, check: str | None, tmp_path: Path, capsys: Capture
) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    text = script.read_text()
    assert "--max-inflight-steps" in text and "reload-tenants" in text
    if check:
        subprocess.run([*check.split(), str(script)], check=True, timeout=30)
