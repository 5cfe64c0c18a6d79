"""Whom a process had banned the process after it bans, for the rest of the time (AK12)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from frontend_svc.guard.addresses import NO_PROXIES
from frontend_svc.guard.ban_file import BanFile
from frontend_svc.guard.packet_filter import MAX_CLIENTS, drop_clients
from frontend_svc.guard.port import Port
from frontend_svc.guard.shedding import BAN_S, Shedding
from frontend_svc.guard.sockets import Connection, PortSockets
from tests.frontend_svc.guard.test_guard import Scene, is_open, scene  # noqa: F401
from tests.frontend_svc.guard.test_levels import choose, from_hosts

NETWORK = "2001:db8:1:2::/64"


@pytest.fixture
def file(tmp_path: Path) -> BanFile:
    return BanFile(tmp_path / "bans")


def test_bans_are_left_and_end_when_they_would_have(file: BanFile) -> None:
    for after_s, left_s in ((4.0, {"1.2.3.4": 16.0, NETWORK: 1.0}), (6.0, {"1.2.3.4": 14.0}), (21.0, {})):
        file.write({"1.2.3.4": 20.0, NETWORK: 5.0}, 1000.0)
        assert [each.name for each in file.path.parent.iterdir()] == ["bans"]
        assert file.take(1000.0 + after_s, BAN_S) == pytest.approx(left_s)


def test_a_clock_that_was_set_back_makes_no_ban_longer(file: BanFile) -> None:
    file.write({"1.2.3.4": 20.0}, 1_000_000.0)
    assert file.take(5.0, BAN_S) == {"1.2.3.4": BAN_S}


def test_the_newest_bans_of_too_many_are_kept(file: BanFile) -> None:
    clients = [f"10.0.{number // 256}.{number % 256}" for number in range(3 * MAX_CLIENTS)]
    file.write(dict.fromkeys(clients, 20.0), 0.0)
    assert list(file.take(0.0, BAN_S)) == clients[-MAX_CLIENTS:]
    text = json.dumps(dict.fromkeys(clients, 20.0))
    file.path.write_text(text)
    assert list(file.take(0.0, BAN_S)) == clients[-MAX_CLIENTS:]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"1.2.3.4": "soon"}',
        '{"a host": 20}',
        '{"1.2.3.4": null}',
        "\xff",
        f'{{"1.2.3.4": {"9" * 401}}}',
        "[" * 16000,
        '{"0.0.0.0/0": 20, "::/0": 20, "10.0.0.0/8": 20, "2001:db8::/48": 20}',
    ],
    ids=range(10),
)
def test_a_file_that_is_none_of_ours_bans_nobody_and_is_met_once(file: BanFile, text: str) -> None:
    file.path.write_text(text, "latin-1")
    assert file.take(0.0, BAN_S) == {}
    assert not file.path.exists()


class NoSockets(PortSockets):
    """Sockets of a machine that shows none."""

    def look(self) -> list[Connection]:
        raise OSError("no such file")


def test_bans_that_cannot_be_taken_over_hinder_no_start(file: BanFile) -> None:
    file.write({"1.2.3.4": 20.0}, time.time())
    Port(NoSockets(1), shed := Shedding(100, NO_PROXIES), lambda reason: None, file).begin(0.0)
    assert shed.filter_for(0.0, is_shut=False) == drop_clients(["1.2.3.4"])


def test_without_a_file_or_a_place_for_it_nothing_fails(tmp_path: Path) -> None:
    missing = BanFile(tmp_path / "none" / "bans")
    missing.write({"1.2.3.4": 20.0}, 0.0)
    assert missing.take(0.0, BAN_S) == {}


def test_a_banned_client_that_comes_in_all_the_same_ends() -> None:
    """Where the kernel has no filters, or before there is one. What it had open before stays."""
    shed = Shedding(100, NO_PROXIES)
    choose(shed, from_hosts("1.2.3.4"), is_shut=False, is_rising=False)
    shed.ban({"1.2.3.4": 20.0}, 0.0)
    both = from_hosts("1.2.3.4", "1.2.3.4", "1.2.3.5")
    assert choose(shed, both, is_shut=False, is_rising=False) == {1: "memory"}
    assert shed.filter_for(21.0, is_shut=False) is None
    assert (
        choose(shed, from_hosts("1.2.3.4", "9.9.9.9", "1.2.3.5", "1.2.3.4"), is_shut=False, is_rising=False)
        == {}
    )


def test_the_process_after_one_that_ended_keeps_its_strangers_out(scene: Scene, file: BanFile) -> None:  # noqa: F811
    """The first guard ends for memory and leaves its bans; a second one over the same port begins with them."""
    scene.guard._port = port_of(scene, first := Shedding(100, NO_PROXIES), file)
    first.ban({"127.0.0.9": BAN_S}, scene.now)
    scene.memory.used = 900
    scene.look()
    assert scene.last == 1
    until = json.loads(file.path.read_text())["127.0.0.9"]
    assert time.time() < until <= time.time() + BAN_S

    after = port_of(scene, second := Shedding(100, NO_PROXIES), file)
    after.begin(scene.now)
    assert second.filter_for(scene.now, is_shut=False) == drop_clients(["127.0.0.9"])
    stranger, honest = (
        scene.connect("127.0.0.9") if not has_filters(scene) else None,
        scene.connect("127.0.0.8"),
    )
    after.look(scene.now, is_shut=False, is_rising=False)
    assert is_open(honest)
    assert stranger is None or not is_open(stranger)


def port_of(scene: Scene, shedding: Shedding, file: BanFile) -> Port:  # noqa: F811
    return Port(PortSockets(scene.listener.getsockname()[1]), shedding, scene.ended.append, file)


def has_filters(scene: Scene) -> bool:  # noqa: F811
    """Whether the kernel drops packets of the banned; gVisor knows no filters."""
    client = scene.try_to_connect("127.0.0.9")
    if client is None:
        return True
    scene.accept()
    return False
