"""What operators say of a service's metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import field_validator, model_validator

from signalbox.links.tls.identity import Identity
from signalbox.links.tls.scrapes import ScrapeGuard
from signalbox.links.tls.settings import LinkSettings
from signalbox.runtime.config import flag_of

_FILES = ("metrics_tls_cert", "metrics_tls_key", "metrics_tls_ca")


class MetricsSettings(LinkSettings):
    """Settings of a service that serves metrics."""

    metrics: str = ""
    """host:port of Prometheus metrics at /metrics; port 0: any free one. Empty: none are served."""
    metrics_tls: bool = True
    """Whether metrics are served over TLS where there is a certificate: one of their own, else the service's. Not: in
    plaintext, and beyond this machine only with insecure."""
    metrics_tls_cert: Path | None = None
    """File with a certificate for the port of metrics, PEM. Read again when it changes. Unset: that of the service
    (tls_cert)."""
    metrics_tls_key: Path | None = None
    """File with its private key, PEM."""
    metrics_tls_ca: Path | None = None
    """File with the authority, PEM, of which whoever reads metrics has to show a certificate; one that says a role of
    the ring has to be a monitor's or an operator's. Unset: they need none."""

    @property
    def plaintext_metrics(self) -> tuple[str, ...]:
        """Where metrics are served in plaintext."""
        return (self.metrics,) if self.metrics and self._metrics_files is None else ()

    @property
    def _metrics_files(self) -> tuple[Path, Path] | None:
        """Certificate and key that the port of metrics shows; None: plaintext."""
        for cert, key in ((self.metrics_tls_cert, self.metrics_tls_key), (self.tls_cert, self.tls_key)):
            if self.metrics_tls and cert is not None and key is not None:
                return cert, key
        return None

    def metrics_guard(self) -> ScrapeGuard | None:
        """The TLS of the port of metrics; None: plaintext, or there is no such port. Raises StartupError."""
        if not self.metrics or self._metrics_files is None:
            return None
        cert, key = self._metrics_files
        files = cert, key, self.metrics_tls_ca
        return ScrapeGuard(Identity(*files, "--metrics-tls", domain=self.tls_trust_domain))

    @field_validator("metrics")
    @classmethod
    def _is_address(cls, metrics: str) -> str:
        host, _, port = metrics.rpartition(":")
        if metrics and not (host and port.isdecimal() and int(port) < 1 << 16):
            raise ValueError("must be host:port")
        return metrics

    @model_validator(mode="after")
    def _has_what_its_tls_needs(self) -> Self:
        """Nothing that is asked for is left out silently: a port that was to be TLS, or to know its readers."""
        files = [flag_of(name) for name in _FILES if getattr(self, name) is not None]
        if files and not self.metrics:
            raise ValueError(f"{files[0]} is for the port of --metrics, and none is given")
        if files and not self.metrics_tls:
            raise ValueError(f"{files[0]} and --no-metrics-tls exclude each other")
        if (self.metrics_tls_cert is None) != (self.metrics_tls_key is None):
            raise ValueError("--metrics-tls-cert and --metrics-tls-key must be given together")
        if files and self._metrics_files is None:
            raise ValueError("--metrics-tls-ca needs a certificate: --metrics-tls-cert, or --tls-cert")
        return self
