"""How clients reach the faces of a ring."""

from __future__ import annotations

import os
from pathlib import Path

import grpc

from signalbox.api_keys import CA_VARIABLE
from signalbox.errors import StartupError
from signalbox.links import rpc
from signalbox.links.tls.schemes import PLAIN, SECURE


def public_channel(address: str, ca: str | Path | None = None) -> grpc.aio.Channel:
    """A channel to the face at `host:port` or `grpc://host:port`, in plaintext, or at `grpcs://host:port`, by TLS. ca:
    the authority that is believed, PEM; None: that of CA_VARIABLE, else those that gRPC comes with. Raises
    StartupError."""
    if not address.startswith(SECURE):
        return rpc.channel(address.removeprefix(PLAIN))
    roots = _read_ca(ca or os.environ.get(CA_VARIABLE) or None)
    return rpc.secure_channel(address.removeprefix(SECURE), grpc.ssl_channel_credentials(roots))


def _read_ca(path: str | Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StartupError(f"{CA_VARIABLE} {path}: {error.strerror}") from None
