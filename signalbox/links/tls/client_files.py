"""What clients of a ring's faces believe and show, in files of PEM.

Without gRPC, which takes a while to load: the command line's HTTP uses it, too.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from signalbox.errors import StartupError

CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE = "SIGNALBOX_CA", "SIGNALBOX_CLIENT_CERT", "SIGNALBOX_CLIENT_KEY"
"""Variables with the files, for clients that are told no others."""


@dataclass(frozen=True)
class ClientFiles:
    """A client's authority, certificate and key. Files are read with each connection: renewed ones count from then
    on."""

    ca: Path | None = None
    """The authority of servers that is believed; None: those that the system, or gRPC, comes with."""
    cert: Path | None = None
    """The certificate that is shown where a server asks for one, and those between it and its authority; None: none."""
    key: Path | None = None
    """Its private key, unencrypted."""

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            there, missing = ("certificate", "key") if self.key is None else ("key", "certificate")
            raise StartupError(
                f"a client's {there} is given without its {missing}: --cert and --key,"
                f" or {CERT_VARIABLE} and {KEY_VARIABLE}, belong together"
            )

    @classmethod
    def chosen(
        cls, ca: str | Path | None = None, cert: str | Path | None = None, key: str | Path | None = None
    ) -> Self:
        """What is given, and the variables' files for the rest; certificate and key are one thing. Raises
        StartupError."""
        if cert is None and key is None:
            cert, key = _said(CERT_VARIABLE), _said(KEY_VARIABLE)
        ca = _said(CA_VARIABLE) if ca is None else ca
        return cls(*(None if path is None else Path(path) for path in (ca, cert, key)))

    def context(self) -> ssl.SSLContext:
        """For HTTPS, and for gRPC that is not grpc's own. Raises StartupError that names the file."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as error:  # ssl.SSLError is one
            raise StartupError(f"authority {self.ca}: {error.strerror or error}") from None
        self.show(context)
        return context

    def show(self, context: ssl.SSLContext) -> None:
        """Has a context show the certificate, if there is one. Raises StartupError."""
        if self.cert is None:
            return
        try:
            # A password is never asked for: nobody may sit there.
            context.load_cert_chain(self.cert, self.key, password="")
        except OSError as error:
            reason = error.strerror or error
            raise StartupError(f"certificate {self.cert} with key {self.key}: {reason}") from None

    def pem(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Authority, key and certificate, in grpc's order. Raises StartupError, also when they do not fit."""
        self.context()
        try:
            ca, key, cert = (
                None if path is None else path.read_bytes() for path in (self.ca, self.key, self.cert)
            )
        except OSError as error:
            raise StartupError(f"{error.filename}: {error.strerror}") from None
        return ca, key, cert


def refuse_for_plaintext(address: str, *files: object) -> None:
    """Raises StartupError when one of `ca`, `cert` and `key` was given for an address without TLS."""
    if any(file is not None for file in files):
        raise StartupError(f"{address} is plaintext: ca, cert and key are for grpcs:// and https://")


def _said(variable: str) -> str | None:
    return os.environ.get(variable) or None
