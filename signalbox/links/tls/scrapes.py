"""TLS of a port with metrics: what it shows, and who may read there."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterable
from typing import Final, cast

from signalbox.links.tls.identity import Identity
from signalbox.links.tls.roles import Role, roles_of

READERS: Final = frozenset({Role.MONITOR, Role.OPERATOR})
"""Roles of the ring that read metrics."""


class ScrapeGuard:
    """Encrypts connections by what the files of an identity say at that moment. Asked for connections by one thread,
    and for readers by any."""

    def __init__(self, identity: Identity) -> None:
        """Raises StartupError."""
        self._identity = identity
        self._pem = identity.pem()
        self._context = identity.http_context()

    def encrypt(self, connection: socket.socket) -> ssl.SSLSocket:
        """The connection, whose handshake is still to be made: nothing is read or written here. Raises OSError."""
        return self._current().wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def may_read(self, connection: ssl.SSLSocket) -> bool:
        """Whether the client of an encrypted connection reads metrics. Where no certificate is asked for, everybody;
        else nobody who is something else in the ring. One that says no role is of an authority for other things: it
        has been chosen for this port."""
        shown = connection.getpeercert() or {}
        pairs = cast(Iterable[tuple[str, str]], shown.get("subjectAltName", ()))
        names = [name for _, name in pairs]
        roles = roles_of(names, self._identity.domain)
        return not roles or bool(roles & READERS)

    def _current(self) -> ssl.SSLContext:
        """A context is made anew when the files have changed: one that is in use forgets no authority."""
        pem = self._identity.pem()
        if pem is not self._pem:
            with contextlib.suppress(
                OSError
            ):  # replaced this very moment: the next connection sees all of it
                self._context, self._pem = self._identity.http_context(), pem
        return self._context
