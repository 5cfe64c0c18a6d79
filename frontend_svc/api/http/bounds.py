"""How much a connection may ask for before anybody knows whose it is."""

from __future__ import annotations

import resource
from dataclasses import dataclass

RESERVED_FILES = 256
"""Open files that a process needs for other things than connections of clients."""
FEWEST_CONNECTIONS = 64
HTTP_SHARE, GRPC_SHARE = 0.75, 0.25
"""Parts of the files that are left for connections of clients. Those over gRPC have many calls each."""


@dataclass(frozen=True)
class HttpBounds:
    """Bounds of one HTTP listener. Times are in seconds."""

    max_connections: int
    max_per_address: int = 1024
    """Connections at a time of one IPv4 address, or one /64 of IPv6."""
    max_head_bytes: int = 64 << 10
    """Request line and headers, trailers included."""
    max_headers: int = 128
    head_s: float = 20.0
    """Until the head of a request is there: of a new connection from its beginning, then from the first byte."""
    body_grace_s: float = 20.0
    body_bytes_s: float = 1024.0
    """Fewest bytes per second of a body once that time is over; what a server does not want to read yet is no fault of
    its client."""
    idle_s: float = 75.0
    """Until a connection without a request is closed. A client that closes first never sends into a closed connection,
    and usual ones do: httpx after 5 s, aiohttp after 15, nginx and the balancers of AWS after 60."""
    linger_s: float = 2.0
    """How long what a client still sends is thrown away behind its last answer, so that it gets to see that."""
    linger_bytes: int = 16 << 20
    """And how much of it; so much of a body, too, that comes behind its answer on a connection that goes on."""
    stall_s: float = 120.0
    """How long a client may take nothing of an answer that waits for it."""
    answer_bytes_s: float = 1024.0
    """Fewest bytes per second that it takes of one once that time is over, where the answer is no stream of events:
    all of it is in memory."""
    max_lingering: int = 64
    """Connections that linger at a time; those above are closed at once."""


def connections_for(wanted: int, share: float = HTTP_SHARE) -> int:
    """Most connections; `wanted` 0: a share of the files that this process may have open, less what it needs itself."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted or max(FEWEST_CONNECTIONS, int(share * (files - RESERVED_FILES)))
