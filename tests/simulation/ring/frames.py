"""What travels in a connection: the parts of calls, as HTTP/2 has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc

EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Begin:
    """A call begins."""

    call: int
    method: str


@dataclass(frozen=True, slots=True)
class Message:
    """A serialized message of either side."""

    call: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class Metadata:
    """The server has taken the call."""

    call: int


@dataclass(frozen=True, slots=True)
class HalfClose:
    """The client has said all."""

    call: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """The client wants no more."""

    call: int


@dataclass(frozen=True, slots=True)
class Status:
    """The call has ended."""

    call: int
    code: grpc.StatusCode
    details: str
    trailing: tuple[tuple[str, Any], ...] = ()
