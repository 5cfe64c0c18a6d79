"""How much a connection to the gRPC port may ask for before anybody knows whose it is: what grpc itself can bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MAX_STREAMS = 64
"""Calls of one connection at a time. grpc's core keeps some 300 bytes for each byte of a header block until the call
has been answered: so many calls hold tens of MiB in all, not thousands."""
SPARE_STREAMS = 64
"""Calls of a router beside open requests: health checks, Abort, lists of models."""


@dataclass(frozen=True)
class GrpcBounds:
    """Bounds of one listener. Headers of a call have grpc's own: 16 KiB, of which from 8 KiB on some are refused."""

    max_connections: int
    """Connections at a time; one above is closed as soon as it is accepted."""
    max_streams: int
    """Calls of one connection at a time; its client keeps further ones back until one ends."""
    max_per_address: int = 64
    """Connections at a time of one IPv4 address, or one /64 of IPv6. One above is ended within half a second: grpc
    shows connections to nobody, so the kernel is asked (frontend_svc/guard)."""
    handshake_s: float = 20.0
    """Until TLS and the first frame of HTTP/2 are there."""
    idle_s: float = 75.0
    """Until a connection without a call is told to go, as over HTTP. grpc's clients dial again with their next call."""

    @property
    def options(self) -> list[tuple[str, Any]]:
        """As grpc's servers take them."""
        return [
            ("grpc.max_allowed_incoming_connections", self.max_connections),
            ("grpc.max_concurrent_streams", self.max_streams),
            ("grpc.server_handshake_timeout_ms", round(self.handshake_s * 1000)),
            ("grpc.max_connection_idle_ms", round(self.idle_s * 1000)),
        ]
