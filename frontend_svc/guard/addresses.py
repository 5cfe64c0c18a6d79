"""Connections counted by the address that they come from, but for those of proxies that are trusted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network
CLIENT_PREFIX = 64
"""Bits of an IPv6 address that identify a client: a client is usually given a whole network of this size."""


def read_networks(text: str) -> tuple[Network, ...]:
    """The networks of `10.0.0.0/8,192.0.2.7`. Raises ValueError with a sentence."""
    found = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        try:
            network = ip_network(item)
        except ValueError:
            raise ValueError(f"{item!r} is no address and no network, such as 10.0.0.0/8") from None
        if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped is not None:
            raise ValueError(f"{item!r} is an IPv4 network in IPv6: write it as IPv4, such as 10.0.0.0/8")
        found.append(network)
    return tuple(found)


def client_of(host: str) -> str:
    """Whom an address counts for: an IPv4 address itself, also within IPv6, else its /64. What is no address stands
    for itself."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is None:
            return str(ip_network((address, CLIENT_PREFIX), strict=False))
        address = address.ipv4_mapped
    return str(address)


class TrustedProxies:
    """Whose connections are not counted: they carry those of many clients."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        self._networks = networks

    def has(self, host: str) -> bool:
        """Whether a connection from there is a trusted proxy's."""
        if not self._networks:
            return False
        try:
            address = ip_address(host.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)


NO_PROXIES = TrustedProxies()


class AddressCounts:
    """How many connections each client has open."""

    def __init__(self, most: int, proxies: TrustedProxies) -> None:
        """most: of one client."""
        self.most = most
        self._proxies = proxies
        self._open: Counter[str] = Counter()

    def enter(self, host: str) -> bool:
        """Counts a connection; False: there are too many from there, and it is not counted."""
        if self._proxies.has(host):
            return True
        client = client_of(host)
        if self._open[client] >= self.most:
            return False
        self._open[client] += 1
        return True

    def leave(self, host: str) -> None:
        """A connection that was counted has ended."""
        if self._proxies.has(host):
            return
        client = client_of(host)
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]
