"""The certificate of this process, and the authority by which it knows the others.

A process has one identity, which `take_on` sets before it listens or dials; without one its links are plaintext. Files
are read again when they change: servers show the new certificate to whoever connects next, and each new channel is made
with what the files say then. Streams that are open go on, also beyond the end of the certificate that opened them.
"""

from __future__ import annotations

import logging
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

import grpc

from signalbox.errors import StartupError
from signalbox.links.tls.roles import DOMAIN, Role

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pem:
    """What the files of an identity say."""

    cert: bytes
    """The leaf, and what is between it and the authority."""
    key: bytes
    ca: bytes | None


class Identity:
    """Certificate, private key and authority, in three files of PEM. Asked from any thread."""

    def __init__(
        self, cert: Path, key: Path, ca: Path | None, flags: str = "--tls", *, domain: str = DOMAIN
    ) -> None:
        """ca: None: who dials needs no certificate. flags: how the settings of the files begin. domain: trust domain
        of the URIs that say roles. Raises StartupError
        with a sentence that names the file."""
        self._cert, self._key, self._ca = cert, key, ca
        self._flags, self.domain = flags, domain
        self._shown: Pem | None = None
        """What `refresh` has loaded last."""
        self._lock = threading.Lock()
        self._version, self._failed = self._look(), ""
        self._pem = self._read()

    def pem(self) -> Pem:
        """What the files say now; while they do not fit each other, what they said before."""
        with self._lock:
            version = self._look()
            if version != self._version:
                try:
                    self._pem, self._version, self._failed = self._read(), version, ""
                    logger.info("the certificate %s was read again", self._cert)
                except StartupError as error:  # files are replaced one after the other
                    if error.message != self._failed:
                        logger.error("%s; the one that was read before is used on", error.message)
                    self._failed = error.message
            return self._pem

    def for_server(self) -> grpc.ServerCredentials:
        """Only clients with a certificate of our authority get in, if there is one."""

        def fetch() -> grpc.ServerCertificateConfiguration:
            pem = self.pem()
            return grpc.ssl_server_certificate_configuration([(pem.key, pem.cert)], pem.ca)

        return grpc.dynamic_ssl_server_credentials(
            fetch(), fetch, require_client_authentication=self.asks_clients
        )

    @property
    def asks_clients(self) -> bool:
        """Whether clients have to show a certificate."""
        return self._ca is not None

    def http_context(self) -> ssl.SSLContext:
        """What a server over HTTP shows; `refresh` keeps it current."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        if self._ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self._ca)
        context.load_cert_chain(self._cert, self._key)
        return context

    def link_context(self, *, is_server: bool) -> ssl.SSLContext:
        """What one connection beside gRPC shows and believes, by what the files say at this moment, at the end that
        listens or at the one that dials. Both ends show certificates. Raises OSError while files do not fit."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
        context.verify_mode = ssl.CERT_REQUIRED
        assert self._ca is not None, "links of a ring have an authority"
        context.load_verify_locations(self._ca)
        context.load_cert_chain(self._cert, self._key)
        return context

    def refresh(self, context: ssl.SSLContext) -> None:
        """Whoever connects from now on is shown what the files say. Their authority stays until a restart: a context
        forgets none."""
        pem = self.pem()
        if pem is self._shown:
            return
        try:
            context.load_cert_chain(self._cert, self._key)
        except OSError:  # replaced this very moment: the next look sees both
            return
        self._shown = pem

    def for_channel(self) -> grpc.ChannelCredentials:
        """By what the files say at this moment."""
        pem = self.pem()
        return grpc.ssl_channel_credentials(pem.ca, pem.key, pem.cert)

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Changes with the files, and with what links point to."""
        found: list[tuple[int, int, int] | None] = []
        for path in filter(None, (self._cert, self._key, self._ca)):
            try:
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, status.st_ino))
            except OSError:
                found.append(None)
        return tuple(found)

    def _read(self) -> Pem:
        """Raises StartupError, also when key and certificate do not belong together."""
        cert, key, ca = self._cert, self._key, self._ca
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(cert, key)
        except OSError as error:  # ssl.SSLError is one
            raise StartupError(
                f"{self._flags}-cert {cert} with {self._flags}-key {key}: {error.strerror or error}"
            ) from None
        try:
            if ca is not None:
                context.load_verify_locations(ca)
            return Pem(cert.read_bytes(), key.read_bytes(), ca.read_bytes() if ca else None)
        except OSError as error:
            raise StartupError(f"{self._flags}-ca {ca}: {error.strerror or error}") from None


class _Process:
    """Who this process is."""

    identity: Identity | None = None


def take_on(identity: Identity | None) -> None:
    """Every server and channel of a ring's links that is made from now on is that of `identity`; None: plaintext."""
    _Process.identity = identity


def ours() -> Identity | None:
    """The identity of this process; None: its links are plaintext."""
    return _Process.identity


def name_options(role: Role) -> list[tuple[str, str]]:
    """Options of a channel whose server has to be a `role`, wherever it runs."""
    return [("grpc.ssl_target_name_override", role.dns_name), ("grpc.default_authority", role.dns_name)]
