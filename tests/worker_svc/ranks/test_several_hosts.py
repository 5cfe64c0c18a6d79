"""Ranks that are started each by itself, as torchrun and LeaderWorkerSet start them (RK10): real processes that find
each other by TCP, with certificates and without."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from signalbox.errors import StartupError
from signalbox.links.tls.authority import make_authority, make_leaf, write_issued
from signalbox.links.tls.identity import Identity, take_on
from signalbox.links.tls.roles import Role
from signalbox.v1 import ranks_pb2
from tests.pairs import in_soak
from tests.ports import free_ports
from tests.worker_svc.drafting.local_ring import LocalRing
from tests.worker_svc.ranks.groups import settings_for
from tests.worker_svc.runner.reference import make_prompts
from tools.make_random_model import make_model
from worker_svc.ranks import frames, joining
from worker_svc.ranks.joining import SAYS, TOLD, VERSION, Gathering, dial, listen
from worker_svc.ranks.place import PORT, RankPlace, place_of
from worker_svc.ranks.runners import LeadingRunner
from worker_svc.runner_factory import make_runner

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("tiny-llama", tmp_path_factory.mktemp("model"), seed=1)


@contextmanager
def other_rank(environment: Mapping[str, str], *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """`worker-svc` as rank 1."""
    process = subprocess.Popen(
        [sys.executable, "-m", "worker_svc", "--tensor-parallel", "2", "--model", "/nowhere", *flags],
        env={**os.environ, **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def torchrun(rank: int, port: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


PLAIN = [pytest.param(False, 1, marks=pytest.mark.soak)]
"""As ranks of most other tests here find each other."""


@pytest.mark.parametrize(("has_certificates", "num_stages"), [(True, 1), (False, 2), *PLAIN])
def test_ranks_find_each_other(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    has_certificates: bool,
    num_stages: int,
) -> None:
    """The other one knows neither model nor settings but what rank 0 tells it; a signal to end means rank 0."""
    (port,) = free_ports(1)
    parts = {"tensor_parallel": 2 // num_stages, "pipeline_parallel": num_stages}
    files = [f"--{name.replace('_', '-')}={count}" for name, count in parts.items()]
    if has_certificates:
        authority, now = make_authority(datetime.now(UTC)), datetime.now(UTC)
        write_issued(tmp_path, "ca", authority)
        write_issued(tmp_path, "worker", make_leaf(authority, Role.WORKER, now))
        names = [str(tmp_path / name) for name in ("worker.crt", "worker.key", "ca.crt")]
        files += [f"--tls-{kind}={name}" for kind, name in zip(("cert", "key", "ca"), names, strict=True)]
        take_on(Identity(*map(Path, names)))
        request.addfinalizer(lambda: take_on(None))
    for name, value in torchrun(0, port).items():
        monkeypatch.setenv(name, value)
    one, _ = make_runner(settings_for(path, tensor_parallel=1))
    prompts = make_prompts((17, 40))

    def play(runner: object) -> list[list[int]]:
        ring = LocalRing(runner, None, depth=2, num_seqs=4)  # type: ignore[arg-type]
        clients = [ring.submit(prompt, 12) for prompt in prompts]
        ring.run()
        return [client.output for client in clients]

    with other_rank(torchrun(1, port), *files) as process:
        runner, _ = make_runner(settings_for(path, **parts))
        assert isinstance(runner, LeadingRunner)
        assert play(runner) == play(one)
        process.send_signal(signal.SIGTERM)
        assert play(runner)[0], "it went with a signal that is rank 0's"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 1)
        runner.close()
        assert process.wait(10) == 0


def test_the_environment_names_the_rank() -> None:
    assert place_of({}, 2) is None and place_of(torchrun(1, 29500), 1) is None
    assert place_of(torchrun(1, 29500), 2) == RankPlace(1, 2, "127.0.0.1:29500")
    names = {"LWS_WORKER_INDEX": "2", "LWS_GROUP_SIZE": "4", "LWS_LEADER_ADDRESS": "w-0.workers.ns"}
    assert place_of(names, 4) == RankPlace(2, 4, f"w-0.workers.ns:{PORT}")
    agents = torchrun(1, 29500) | {"TORCHELASTIC_USE_AGENT_STORE": "True", "LOCAL_WORLD_SIZE": "2"}
    assert place_of(agents, 2) == RankPlace(1, 2, f"127.0.0.1:{PORT}", 2), "MASTER_PORT is torchrun's own"
    assert place_of({"WORLD_SIZE": "1", "RANK": "0"}, 2) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"MASTER_PORT": ""}, "lacks MASTER_PORT"),
        ({"RANK": "2"}, "names rank 2 of 2"),
        ({"RANK": "x"}, "names no rank"),
        ({"MASTER_PORT": "99999"}, "names no rank"),
        (
            {"WORLD_SIZE": "4", "RANK": "3"},
            "names 4 ranks, and --tensor-parallel times --pipeline-parallel is 2",
        ),
    ],
)
def test_a_place_that_cannot_be_is_refused(change: dict[str, str], words: str) -> None:
    with pytest.raises(StartupError, match=words):
        place_of(torchrun(0, 29500) | change, 2)


def say(port: int, raw: bytes | None = None, **hello: object) -> str | None:
    """What rank 0 refuses a connection with, empty: it does not; None: it hangs up."""
    fields = {"version": VERSION, "rank": 1, "num_ranks": 2, "channel": TOLD} | hello
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.settimeout(5)
        if raw is None:
            frames.send(connection, ranks_pb2.RankHello(**fields))  # type: ignore[arg-type]
        else:
            connection.sendall(raw)
        welcome = frames.receive(connection, ranks_pb2.RankWelcome)
    return None if welcome is None else welcome.refusal


def test_strangers_are_sent_away_and_harm_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "HELLO_S", 0.3)
    listener = listen("127.0.0.1:0")
    port = listener.getsockname()[1]
    gathering = Gathering(2, None)
    waiting = threading.Thread(target=gathering.wait, args=(listener, 30))
    waiting.start()
    for changes, words in (
        ({"version": "other"}, "another release"),
        ({"rank": 2}, "rank 2 of 2"),
        ({"rank": 0}, "rank 0 of 2"),
        ({"num_ranks": 3}, "there are 2"),
        ({"channel": 0}, "for nothing"),
    ):
        assert words in (say(port, **changes) or ""), changes  # type: ignore[arg-type]
    for raw in (b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", b"", b"\x08\0"):
        assert say(port, raw) is None, raw
    with pytest.raises(StartupError, match="refuses this one: it is rank 1 of 3"):
        dial(RankPlace(1, 3, f"127.0.0.1:{port}"), None, 5)
    connections = dial(RankPlace(1, 2, f"127.0.0.1:{port}"), None, 5)
    waiting.join(10)
    assert not waiting.is_alive() and set(gathering.channels) == {(1, TOLD), (1, SAYS)}
    for connection in (*connections, *gathering.channels.values()):
        limit_ms = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert limit_ms == joining.PATH_S * 1e3, "RK5: the system watches the path"
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        connection.close()


def test_who_comes_late_takes_nobody_s_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection from before the port was closed says hello behind that."""
    listener = listen("127.0.0.1:0")
    port = listener.getsockname()[1]
    gathering = Gathering(2, None)
    waiting = threading.Thread(target=gathering.wait, args=(listener, 30))
    waiting.start()
    with socket.create_connection(("127.0.0.1", port), 5) as late:
        connections = dial(RankPlace(1, 2, f"127.0.0.1:{port}"), None, 5)
        waiting.join(10)
        theirs = dict(gathering.channels)
        late.settimeout(5)
        try:
            hello = ranks_pb2.RankHello(version=VERSION, rank=1, num_ranks=2, channel=TOLD)
            frames.send(late, hello)
            frames.receive(late, ranks_pb2.RankWelcome)
        except OSError:
            pass
        time.sleep(0.2)
        assert gathering.channels == theirs and all(each.fileno() >= 0 for each in theirs.values())
    for connection in connections:
        connection.close()


def test_who_does_not_come_is_named() -> None:
    started = time.monotonic()
    with pytest.raises(StartupError, match="rank 1 has not come"):
        Gathering(3, None).wait(listen("127.0.0.1:0"), 0.2)
    with pytest.raises(StartupError, match="rank 0 is not reached"):
        dial(RankPlace(1, 2, "127.0.0.1:1"), None, 0.1)
    assert time.monotonic() - started < 10


def test_between_hosts_plaintext_has_to_be_allowed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RK10: sums go by gloo, which knows no certificates."""
    for name, value in (torchrun(0, 29500) | {"MASTER_ADDR": "10.0.0.7"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        StartupError, match=r"10\.0\.0\.7:29500 and 0\.0\.0\.0:29500 can be reached from other machines"
    ):
        settings_for(path).take_effect()


@pytest.mark.parametrize("number", [signal.SIGKILL, *in_soak(signal.SIGSTOP)])
def test_a_rank_elsewhere_that_dies_or_is_stopped_is_noticed(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """RK5: by its connection, or by its silence."""
    (port,) = free_ports(1)
    for name, value in torchrun(0, port).items():
        monkeypatch.setenv(name, value)
    with other_rank(torchrun(1, port)) as process:
        runner, _ = make_runner(settings_for(path))
        assert isinstance(runner, LeadingRunner)
        process.send_signal(number)
        end = time.monotonic() + 5
        while runner.failure is None:
            assert time.monotonic() < end, "nobody noticed"
            time.sleep(0.02)
        assert "rank 1" in str(runner.failure)
        runner.close()


def test_torchrun_starts_both(path: Path, tmp_path: Path) -> None:
    """The launcher itself: rank 0 serves, and its exit ends the other."""
    ports = free_ports(2)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes=1",
        "--nproc-per-node=2",
        "--no-python",
    ]
    flags = [
        *("--tensor-parallel=2", f"--model={path}", "--dtype=float32", "--num-blocks=64", "--threads=1"),
        *(f"--listen=127.0.0.1:{ports[0]}", f"--scheduler=127.0.0.1:{ports[1]}"),
    ]
    with (tmp_path / "log").open("wb") as log:
        worker = [sys.executable, "-m", "worker_svc", *flags]
        process = subprocess.Popen([*command, *worker], stdout=log, stderr=log)
        try:
            end = time.monotonic() + 90
            while b"model" not in (text := (tmp_path / "log").read_bytes()) or b"loaded in" not in text:
                assert process.poll() is None and time.monotonic() < end, text.decode()
                time.sleep(0.2)
        finally:
            ranks = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            _, outliving = psutil.wait_procs([*ranks, process], timeout=40)
            for each in outliving:
                each.kill()
            assert not outliving, "torchrun was told to end, and a rank was not"


@pytest.mark.parametrize("what", ["weights", "nothing"])
def test_ranks_of_other_weights_are_refused(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """RK3: what they would add up would be wrong alike at both."""
    from worker_svc.ranks.runners import RankRunner  # noqa: PLC0415

    if what == "weights":
        monkeypatch.setattr(RankRunner, "likeness", "weights of another model")
        with pytest.raises(StartupError, match="rank 1 is not like rank 0"):
            make_runner(settings_for(path))
    else:
        runner, _ = make_runner(settings_for(path))
        assert isinstance(runner, LeadingRunner)
        runner.close()
