"""What went wrong in a call, from the gRPC status that came back."""

from __future__ import annotations

import math
from typing import Any

import grpc

from signalbox.errors import (
    STATUS,
    InternalError,
    SignalboxError,
    UnavailableError,
    UnsupportedError,
    from_code,
)
from signalbox.links import rpc
from signalbox.links.tls import identity
from signalbox.links.tls.trouble import trouble_of

START_IT = "start it with `signalbox up`"


def error_of(error: grpc.aio.AioRpcError, address: str, advice: str = START_IT) -> SignalboxError:
    """The error that the service at `address` meant by a gRPC status, or what happened to the connection. `advice`:
    what to do where nothing answers."""
    metadata: Any = error.trailing_metadata()
    trailing: dict[str, Any] = dict(metadata or ())
    code, details = error.code(), error.details() or ""
    if "signalbox-error" in trailing:
        ours = from_code(str(trailing["signalbox-error"]), details, str(trailing.get("signalbox-field", "")))
        if rpc.RETRY_AFTER in trailing:
            ours.retry_after_s = _read_seconds(str(trailing[rpc.RETRY_AFTER]))
        return ours
    if trouble := trouble_of(details, address, has_identity=identity.ours() is not None):
        return UnavailableError(trouble)
    if code == grpc.StatusCode.UNAVAILABLE and "onnect" in details and "failed" in details.lower():
        return UnavailableError(f"nothing answers at {address}; {advice}")
    if code == grpc.StatusCode.UNAVAILABLE:
        return UnavailableError(f"the connection to {address} broke: {details}")
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return UnsupportedError(f"{address} is another service, or another version of it: {details}")
    return _BY_STATUS.get(code, InternalError)(details or f"{address} answered {code.name}")


def _read_seconds(text: str) -> float | None:
    """None for what is no number of seconds, as a proxy may send."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None


_BY_STATUS: dict[grpc.StatusCode, type[SignalboxError]] = {}
"""The most general class of each status, for servers and proxies that send no more than that."""
for _error, _status in STATUS.items():
    if _error is not SignalboxError:
        _BY_STATUS.setdefault(_status.grpc, _error)
