"""Settings of the relay service."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from signalbox.links.addresses import read_addresses
from signalbox.telemetry.settings import MetricsSettings


class RelaySettings(MetricsSettings):
    """A relay of signalbox: workers dial it as their scheduler, and their reports and deltas travel together."""

    model_config = SettingsConfigDict(
        env_prefix="SIGNALBOX_RELAY_", cli_prog_name="python -P -m worker_svc.relay"
    )

    scheduler: str = "127.0.0.1:7300"
    """host:port of the scheduler, or a comma-separated list of them: one leads, and the others stand by."""
    scheduler_silence_ms: int = Field(1500, ge=750)
    """A scheduler that says nothing to the workers behind us for so long is taken for gone, in milliseconds."""
    listen: str = "127.0.0.1:7320"
    """host:port at which workers are served."""
    health: str = ""
    """host:port where only health checks are answered, in plaintext, for probes that speak no TLS: kubelet's. Empty:
    they are answered on the port of everything else alone."""
    relay_id: str = "relay-0"
    """Stable name of this relay, for logs."""
    window_ms: float = Field(0.5, ge=0, le=100)
    """How long a report waits for others to travel with it, in milliseconds, and so a delta on its way back. 0: only
    what is ready at the same moment travels together. A loop that has nothing else to do sleeps whole milliseconds."""

    @property
    def plaintext_addresses(self) -> tuple[str, ...]:
        """Where it listens in plaintext."""
        links = () if self.has_certificate else (self.listen,)
        return (*links, *self.plaintext_metrics)

    @property
    def ids(self) -> Mapping[str, str]:
        """What names this process in each JSON object that it logs."""
        return {"relay_id": self.relay_id}

    @field_validator("scheduler")
    @classmethod
    def _names_addresses(cls, text: str) -> str:
        read_addresses(text)
        return text
