"""Addresses in settings and on command lines."""

from __future__ import annotations

from ipaddress import ip_address


def read_address(text: str) -> str:
    """`host:port` without blanks around it. Raises ValueError with a sentence."""
    address = text.strip()
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16 or "," in host:
        raise ValueError(f"{address!r} is not HOST:PORT, such as 127.0.0.1:7300")
    return address


def read_addresses(text: str) -> tuple[str, ...]:
    """The addresses of `host:port,host:port`, each named once. Raises ValueError with a sentence."""
    return tuple(dict.fromkeys(map(read_address, text.split(","))))


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach what listens on `host:port`."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
