"""Lists of addresses in settings and on command lines."""

from __future__ import annotations


def read_addresses(text: str) -> tuple[str, ...]:
    """The addresses of `host:port,host:port`, each named once. Raises ValueError with a sentence."""
    addresses = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ValueError(f"{address!r} is not HOST:PORT, such as 127.0.0.1:7300")
    return addresses
