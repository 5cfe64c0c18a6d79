"""Programs of the kernel's packet filter (classic BPF) that drop packets by the address that they come from."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_network

MAX_CLIENTS = 64
"""Most clients of a filter; a jump reaches 255 instructions."""
_NETWORK = 0xFFF00000
"""Offset of the packet's IP header (SKF_NET_OFF)."""
_LOAD_WORD, _LOAD_BYTE, _JUMP_IF_EQUAL, _SHIFT_RIGHT, _RETURN = 0x20, 0x30, 0x15, 0x74, 0x06
_SOURCE_4, _SOURCE_6 = _NETWORK + 12, _NETWORK + 8
_ALL = 0xFFFFFFFF
Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


@dataclass(frozen=True)
class Filter:
    """A program."""

    instructions: tuple[Instruction, ...]

    def as_option(self) -> bytes:
        """The value of a socket's option; what it points to lives as long as this."""
        code = b"".join(struct.pack("=HBBI", *each) for each in self.instructions)
        object.__setattr__(self, "_code", code)
        return bytes(_Program(len(self.instructions), code))


DROP_ALL = Filter(((_RETURN, 0, 0, 0),))


def drop_clients(clients: Iterable[str]) -> Filter:
    """Drops what comes from these, IPv4 addresses and /64 of IPv6 as `client_of` makes them; MAX_CLIENTS at most."""
    tests = [step for client in clients for step in _test(client)]
    return Filter((*tests, (_RETURN, 0, 0, _ALL)))


def _test(client: str) -> list[Instruction]:
    """Returns 0 for a packet of this client, and goes on for any other."""
    network = ip_network(client)
    address = network.network_address
    version: list[Instruction] = [(_LOAD_BYTE, 0, 0, _NETWORK), (_SHIFT_RIGHT, 0, 0, 4)]
    if isinstance(address, IPv4Address):
        own = [(_LOAD_WORD, 0, 0, _SOURCE_4), (_JUMP_IF_EQUAL, 0, 1, int(address))]
        return [*version, (_JUMP_IF_EQUAL, 0, 3, 4), *own, (_RETURN, 0, 0, 0)]
    high, low = int(address) >> 96, int(address) >> 64 & _ALL
    first = [(_LOAD_WORD, 0, 0, _SOURCE_6), (_JUMP_IF_EQUAL, 0, 3, high)]
    second = [(_LOAD_WORD, 0, 0, _SOURCE_6 + 4), (_JUMP_IF_EQUAL, 0, 1, low)]
    return [*version, (_JUMP_IF_EQUAL, 0, 5, 6), *first, *second, (_RETURN, 0, 0, 0)]
