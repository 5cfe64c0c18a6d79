"""Memory levels, selection of connections to reset, and clients by address (AK8, AK9)."""

from __future__ import annotations

import pytest

from frontend_svc.config import FrontendSettings
from frontend_svc.guard.addresses import NO_PROXIES, AddressCounts, TrustedProxies, client_of, read_networks
from frontend_svc.guard.levels import HEAVY_BYTES, Level, forecast, heaviest, level_of
from frontend_svc.guard.packet_filter import DROP_ALL, drop_clients
from frontend_svc.guard.shedding import BAN_S, Shedding
from frontend_svc.guard.sockets import Connection
from signalbox.errors import StartupError
from signalbox.runtime import config

EASY, TIGHT, LAST = Level


@pytest.mark.parametrize(
    ("before", "used", "after"),
    [
        (EASY, 69, EASY),
        (EASY, 71, TIGHT),
        (EASY, 86, LAST),
        (TIGHT, 66, TIGHT),
        (TIGHT, 64, EASY),
        (TIGHT, 86, LAST),
        (LAST, 1, LAST),
    ],
)
def test_levels(before: Level, used: int, after: Level) -> None:
    assert level_of(used, 100, before) is after


def test_only_the_heaviest_end() -> None:
    """Whoever sends requests of usual size stays, however many they are."""
    light = {f"light-{number}": HEAVY_BYTES - 1 for number in range(100)}
    assert heaviest(light) == [] == heaviest({})
    heavy = {"a": 32 * HEAVY_BYTES, "b": 6 * HEAVY_BYTES, "c": 3 * HEAVY_BYTES}
    assert heaviest(light | heavy) == ["a", "b"]


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_whom_an_address_stands_for(host: str, client: str) -> None:
    assert client_of(host) == client


def test_connections_of_a_client_are_counted_but_for_proxies() -> None:
    counts = AddressCounts(2, TrustedProxies(read_networks("10.1.0.0/16, 2001:db8::7")))
    assert [counts.enter("10.2.0.1") for _ in range(3)] == [True, True, False]
    assert counts.enter("10.2.0.2")
    assert all(
        counts.enter(host) for host in ("10.1.2.3", "::ffff:10.1.2.3", "2001:db8::7") for _ in range(9)
    )
    assert [counts.enter(f"2001:db8::{number}") for number in (1, 2, 3)] == [True, True, False]
    counts.leave("10.2.0.1")
    assert counts.enter("10.2.0.1")


def test_a_proxy_that_is_no_network_is_refused_by_name() -> None:
    with pytest.raises(StartupError, match=r"--trusted-proxies.*'10.0.0.300' is no address"):
        config.load(FrontendSettings, ["--trusted-proxies=10.0.0.0/8,10.0.0.300"])
    with pytest.raises(StartupError, match=r"--trusted-proxies.*write it as IPv4"):
        config.load(FrontendSettings, ["--trusted-proxies=::ffff:10.0.0.0/104"])


def shedding(most: int = 100) -> Shedding:
    return Shedding(most, NO_PROXIES)


def choose(shed: Shedding, connections: list[Connection], now: float = 0.0, **what: bool) -> dict[int, str]:
    return {each.inode: reason for each, reason in shed.choose(connections, now, **what)}


def from_hosts(*hosts: str, received: int = 0) -> list[Connection]:
    return [Connection(inode, host, received) for inode, host in enumerate(hosts)]


def test_the_youngest_above_the_bound_of_an_address_end() -> None:
    shed = shedding(most=2)
    assert choose(shed, from_hosts("a", "b", "a"), is_shut=False, is_rising=False) == {}
    assert choose(shed, from_hosts("a", "b", "a", "a", "b"), is_shut=False, is_rising=False) == {3: "address"}
    assert choose(shed, from_hosts("a", "b", "a"), is_shut=False, is_rising=False) == {}


def test_short_of_memory_no_new_connection_stays() -> None:
    shed = shedding()
    choose(shed, from_hosts("a", "b"), is_shut=False, is_rising=False)
    assert choose(shed, from_hosts("a", "b", "c"), is_shut=True, is_rising=False) == {2: "memory"}
    assert choose(shed, from_hosts("a", "b", "c"), is_shut=False, is_rising=False) == {}


def test_short_of_memory_those_end_that_brought_most_lately() -> None:
    """Not those that brought as much some time ago."""
    shed = shedding()
    old, new = Connection(1, "old", 10 << 20), Connection(2, "new", 1 << 20)
    for received in (0, 1 << 20, 1 << 20, 1 << 20, 1 << 20):
        choose(shed, [old, new], is_shut=False, is_rising=False)
        shed.mark([old, Connection(2, "new", received)])
    more = Connection(2, "new", (1 << 20) + HEAVY_BYTES)
    assert choose(shed, [old, more], is_shut=True, is_rising=False) == {}
    assert choose(shed, [old, more], is_shut=True, is_rising=True) == {2: "memory"}


def test_whoever_brought_most_ends_and_opens_nothing_for_a_while_but_a_proxy_stays() -> None:
    shed = Shedding(100, TrustedProxies(read_networks("10.0.0.0/8")))
    heavy = [Connection(1, "1.2.3.4", 9 << 20), Connection(2, "10.0.0.1", 9 << 20)]
    choose(shed, heavy, 0.0, is_shut=False, is_rising=False)
    assert choose(shed, heavy, 0.0, is_shut=True, is_rising=True) == {1: "memory"}
    assert shed.filter_for(0.1, is_shut=True) == DROP_ALL
    assert shed.filter_for(BAN_S - 1, is_shut=False) == drop_clients(["1.2.3.4"])
    assert shed.filter_for(BAN_S + 1, is_shut=False) is None


def test_a_steep_rise_is_seen_before_it_is_there() -> None:
    """200 ms ahead: at 1 GB/s half of a limit of 512 MB is enough."""
    soon = forecast(250, 300, 0.02)
    assert soon == 800
    assert level_of(300, 512, EASY, soon) is TIGHT
    assert level_of(300, 512, EASY, forecast(299, 300, 0.02)) is EASY
    assert forecast(300, 100, 0.02) == 100
