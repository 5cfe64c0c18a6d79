"""What operators say of a service's certificate."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Self

from pydantic import model_validator

from signalbox.errors import StartupError
from signalbox.links.addresses import is_loopback
from signalbox.links.tls.identity import Identity, take_on
from signalbox.links.tls.roles import DOMAIN
from signalbox.runtime.config import Settings

logger = logging.getLogger(__name__)


class LinkSettings(Settings):
    """Settings of a service whose links may be mutual TLS."""

    tls_cert: Path | None = None
    """File with this service's certificate, PEM, and those between it and the authority; its role is in it (`signalbox
    certs`). Read again when it changes. Unset: the links within the ring are plaintext."""
    tls_key: Path | None = None
    """File with the certificate's private key, PEM."""
    tls_ca: Path | None = None
    """File with the authority whose certificates are believed, PEM."""

    tls_trust_domain: str = DOMAIN
    """Trust domain of the URIs that say roles (spiffe://TRUST-DOMAIN/worker): those of any other say none."""

    insecure: bool = False
    """Whether it may listen in plaintext where more than this machine reaches it: others are trusted then that are on
    the way, or on the network."""

    @property
    def plaintext_addresses(self) -> tuple[str, ...]:
        """Where it listens in plaintext, and may not beyond this machine unless it is told `insecure`."""
        return ()

    @property
    def has_certificate(self) -> bool:
        """Whether the links within the ring are mutual TLS."""
        return self.tls_cert is not None

    @model_validator(mode="after")
    def _are_all_or_none(self) -> Self:
        files = {"--tls-cert": self.tls_cert, "--tls-key": self.tls_key, "--tls-ca": self.tls_ca}
        missing = [flag for flag, path in files.items() if path is None]
        if 0 < len(missing) < len(files):
            raise ValueError(f"{' and '.join(missing)} must be given as well: mutual TLS takes all three")
        return self

    def take_effect(self) -> None:
        """Makes this process the one that the certificate names. Raises StartupError, also for plaintext that nobody
        has asked for."""
        if exposed := [at for at in self.plaintext_addresses if not is_loopback(at)]:
            plain = f"{' and '.join(exposed)} can be reached from other machines, in plaintext"
            if not self.insecure:
                raise StartupError(f"{plain}: give certificates (`signalbox certs`), or say --insecure")
            logger.warning("%s, as --insecure allows", plain)
        if self.tls_cert and self.tls_key and self.tls_ca:
            take_on(Identity(self.tls_cert, self.tls_key, self.tls_ca, domain=self.tls_trust_domain))
