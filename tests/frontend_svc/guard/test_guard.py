"""The guard over real connections, with a memory in the test's hands (AK8, AK9)."""

from __future__ import annotations

import errno
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import cast
from unittest.mock import patch

import pytest

from frontend_svc.guard.addresses import NO_PROXIES
from frontend_svc.guard.guard import LAST_S, LOOK_S, QUIET_S, Guard
from frontend_svc.guard.levels import HEAVY_BYTES, Level
from frontend_svc.guard.memory import Memory
from frontend_svc.guard.packet_filter import DROP_ALL, drop_clients
from frontend_svc.guard.port import Port
from frontend_svc.guard.shedding import Shedding
from frontend_svc.guard.sockets import PortSockets
from signalbox.errors import StartupError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel is asked as Linux is")
LIMIT = 1000


@dataclass
class GivenMemory:
    """A memory that says what it is told to."""

    used: int = 100
    limit_bytes: int = LIMIT

    def used_bytes(self) -> int:
        return self.used


@dataclass
class Scene:
    """A port with accepted connections, and the guard over it."""

    most: int = 100
    memory: GivenMemory = field(default_factory=GivenMemory)
    ended: list[str] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    last: int = 0
    now: float = 100.0

    def __post_init__(self) -> None:
        self.stack = ExitStack()
        self.listener = self.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.accepted: list[socket.socket] = []
        self.guard = Guard(cast(Memory, self.memory), self.count_last, self.left.append)
        sockets = PortSockets(self.listener.getsockname()[1])
        self.guard._port = Port(sockets, Shedding(self.most, NO_PROXIES), self.ended.append)  # no thread

    def count_last(self) -> None:
        self.last += 1

    def connect(self, host: str = "127.0.0.1") -> socket.socket:
        client = self.stack.enter_context(socket.socket())
        client.bind((host, 0))
        client.connect(self.listener.getsockname())
        self.accept()
        return client

    def accept(self) -> None:
        self.accepted.append(self.stack.enter_context(self.listener.accept()[0]))

    def try_to_connect(self, host: str) -> socket.socket | None:
        client = self.stack.enter_context(socket.socket())
        client.settimeout(0.3)
        client.bind((host, 0))
        try:
            client.connect(self.listener.getsockname())
        except TimeoutError:
            return None
        return client

    def look(self, after_s: float = LOOK_S) -> None:
        self.now += after_s
        self.guard.look(self.now)


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene(most=2)
    with scene.stack:
        yield scene


def is_open(client: socket.socket) -> bool:
    client.settimeout(0.05)
    try:
        return client.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def test_connections_of_an_address_are_counted(scene: Scene) -> None:
    first = [scene.connect() for _ in range(2)]
    scene.look()
    more, other = scene.connect(), scene.connect("127.0.0.2")
    scene.look()
    assert [is_open(each) for each in (*first, more, other)] == [True, True, False, True]
    assert scene.ended == ["address"]


def test_what_came_is_dropped_with_the_connection(scene: Scene) -> None:
    """A server that is slow to read would else go on reading what an attacker has sent already."""
    client = scene.connect()
    scene.look()
    client.sendall(b"a" * 2 * HEAVY_BYTES)
    scene.memory.used = 720
    scene.look(0.02)
    assert not is_open(client)
    with pytest.raises(ConnectionError):
        scene.accepted[0].recv(1)


def test_short_of_memory_readers_stay_and_nobody_new_comes(scene: Scene) -> None:
    """What the kernel had taken on before is ended; of what comes then it drops the packets, and clients wait."""
    reader = scene.connect("127.0.0.2")
    scene.look()
    late = scene.stack.enter_context(socket.create_connection(scene.listener.getsockname()))
    scene.memory.used = 720
    scene.look(0.02)
    scene.accept()
    scene.look(0.02)
    assert (is_open(reader), is_open(late), scene.guard.level) == (True, False, Level.TIGHT)
    assert scene.try_to_connect("127.0.0.3") is None
    scene.memory.used = 600
    scene.look(0.02)
    scene.look()
    assert scene.try_to_connect("127.0.0.3")
    assert scene.ended == ["memory"]


def test_whoever_brought_most_cannot_come_again(scene: Scene) -> None:
    heavy = scene.connect("127.0.0.2")
    scene.look()
    heavy.sendall(b"a" * 2 * HEAVY_BYTES)
    scene.memory.used = 720
    scene.look(0.02)
    scene.memory.used = 100
    scene.look(0.1)
    scene.look()
    assert scene.try_to_connect("127.0.0.2") is None
    assert scene.try_to_connect("127.0.0.3")


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_packets_are_dropped_by_address(family: socket.AddressFamily) -> None:
    """By a listener of IPv4, and by one of both kinds, as grpc's is."""
    host, banned = ("127.0.0.1", ["127.0.0.2", "2001:db8::/64"])
    with socket.socket(family) as listener:
        listener.bind(("" if family is socket.AF_INET6 else host, 0))
        listener.listen()
        port = listener.getsockname()[1]
        sockets = PortSockets(port)
        sockets.look()
        sockets.admit(drop_clients(banned))
        assert [can_connect(port, f"127.0.0.{last}") for last in (2, 3)] == [False, True]
        if family is socket.AF_INET6 and can_connect(port, "::1"):
            sockets.admit(drop_clients(["::/64"]))
            assert [can_connect(port, each) for each in ("::1", "127.0.0.2")] == [False, True]
        sockets.admit(DROP_ALL)
        assert not can_connect(port, "127.0.0.3")
        sockets.admit(None)
        assert can_connect(port, "127.0.0.2")


def can_connect(port: int, host: str) -> bool:
    is_new = ":" in host
    with socket.socket(socket.AF_INET6 if is_new else socket.AF_INET) as client:
        client.settimeout(0.3)
        try:
            client.bind((host, 0))
            client.connect(("::1" if is_new else "127.0.0.1", port))
        except OSError:
            return False
        return True


def test_memory_that_stays_does_not_shut_the_port_for_good(scene: Scene) -> None:
    """It does again as soon as it rises further."""
    scene.memory.used = 720
    scene.look()
    assert scene.guard.is_shut
    scene.memory.used = 725
    scene.look(QUIET_S + 0.1)
    late = scene.connect("127.0.0.3")
    scene.look(0.02)
    assert is_open(late) and not scene.guard.is_shut
    scene.memory.used = 740
    scene.look(0.02)
    assert scene.guard.is_shut and is_open(late)


def test_the_end_comes_once_and_is_not_waited_for_forever(scene: Scene) -> None:
    scene.memory.used = 860
    scene.look()
    scene.memory.used = 100
    scene.look(LAST_S / 2)
    assert (scene.last, scene.left, scene.guard.level) == (1, [], Level.LAST)
    scene.look(LAST_S)
    assert (scene.last, scene.left) == (1, [75])


def test_in_front_of_the_kernels_end_nobody_is_waited_for(scene: Scene) -> None:
    scene.memory.used = 970
    scene.look()
    assert scene.left == [75]


def test_a_look_that_fails_is_not_the_last(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """As for want of an open file or a thread."""
    ended = threading.Event()

    def used_bytes() -> int:
        if not caplog.records:
            raise OSError(errno.EMFILE, "too many open files")
        ended.set()
        return 100

    scene.memory.used_bytes = used_bytes  # type: ignore[method-assign]
    with patch.object(Guard, "_check_room"):
        scene.guard.start(None)
    assert ended.wait(20)
    scene.guard.stop()
    assert [record.message for record in caplog.records] == ["memory and connections could not be looked at"]


def test_too_little_to_begin_with_is_one_sentence() -> None:
    memory = GivenMemory(used=900 << 20, limit_bytes=1000 << 20)
    guard = Guard(cast(Memory, memory), lambda: None)
    with pytest.raises(StartupError, match="900 MiB of the memory limit of 1000 MiB are in use"):
        guard.start(None)
