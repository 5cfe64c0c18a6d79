"""Why a connection did not come about, where certificates are the reason."""

from __future__ import annotations

_SIGNS = (
    ("Hostname Verification Check failed", "{} shows the certificate of another role or host"),
    ("WRONG_VERSION_NUMBER", "{} speaks plaintext, and we were told certificates"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "the certificate of {} is not of the authority that we believe, or has expired",
    ),
)
"""Words of gRPC's TLS, and what they mean."""
_CLOSED = "Socket closed"
"""All that a client hears from a server that wants another certificate than it shows, or any."""


def trouble_of(details: str, address: str, *, has_identity: bool) -> str | None:
    """A sentence; None: it was something else. details: what gRPC says of a failed connection to `address`.
    has_identity: we showed a certificate."""
    for sign, sentence in _SIGNS:
        if sign in details:
            return sentence.format(address)
    if _CLOSED not in details or "failed to connect" not in details:
        return None
    if has_identity:
        return f"{address} does not take our certificate: it is of another authority, or has expired"
    return f"{address} closed the connection; if it wants a certificate, say --tls"
