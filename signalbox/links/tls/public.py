"""How clients reach the faces of a ring."""

from __future__ import annotations

from pathlib import Path

import grpc

from signalbox.links import rpc
from signalbox.links.tls.client_files import ClientFiles, refuse_for_plaintext
from signalbox.links.tls.schemes import PLAIN, SECURE


def public_channel(
    address: str, ca: str | Path | None = None, cert: str | Path | None = None, key: str | Path | None = None
) -> grpc.aio.Channel:
    """A channel to the face at `host:port` or `grpc://host:port`, in plaintext, or at `grpcs://host:port`, by TLS. ca:
    the authority that is believed; cert, key: what is shown where the face asks for a certificate; all PEM, None: those
    of the variables (ClientFiles). Raises StartupError."""
    if not address.startswith(SECURE):
        refuse_for_plaintext(address, ca, cert, key)
        return rpc.channel(address.removeprefix(PLAIN))
    roots, private, chain = ClientFiles.chosen(ca, cert, key).pem()
    credentials = grpc.ssl_channel_credentials(roots, private, chain)
    return rpc.secure_channel(address.removeprefix(SECURE), credentials)
