"""The TCP channel between processes with certificates: both ends show one, and both are workers (TL)."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from typing import cast

from signalbox.links.tls.identity import Identity
from signalbox.links.tls.roles import Role, roles_of
from worker_svc.transfer.channels.streams import STALL_S
from worker_svc.transfer.errors import TransferError


def encrypt_source(connection: socket.socket, identity: Identity) -> ssl.SSLSocket:
    """The source's end, by what the files say at this moment. The handshake is still to be made. Raises OSError."""
    context = identity.link_context(is_server=True)
    return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)


def encrypt_target(connection: socket.socket, identity: Identity) -> ssl.SSLSocket:
    """The target's end, by what the files say at this moment. The handshake is still to be made. Raises OSError."""
    context = identity.link_context(is_server=False)
    return context.wrap_socket(
        connection, server_hostname=Role.WORKER.dns_name, do_handshake_on_connect=False
    )


def greet(connection: ssl.SSLSocket, identity: Identity) -> None:
    """Makes the handshake. TransferError if it fails, or the other end is no worker."""
    connection.settimeout(STALL_S)
    try:
        connection.do_handshake()
    except OSError as error:  # ssl.SSLError is one
        raise TransferError(f"no handshake: {error.strerror or error}") from None
    shown = connection.getpeercert() or {}
    names = [name for _, name in cast(Iterable[tuple[str, str]], shown.get("subjectAltName", ()))]
    if Role.WORKER not in roles_of(names, identity.domain):
        raise TransferError("the certificate of the other end is no worker's")
