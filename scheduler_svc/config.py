"""Settings of the scheduler service."""

from __future__ import annotations

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.lease.spec import parse_lease, user_lease
from signalbox.errors import StartupError
from signalbox.links.addresses import read_address
from signalbox.runtime.removed import refusal
from signalbox.telemetry.settings import MetricsSettings


class SchedulerSettings(SchedulerConfig, MetricsSettings):
    """The scheduler of signalbox: decides which blocks and which steps, and never sees a token."""

    model_config = SettingsConfigDict(env_prefix="SIGNALBOX_SCHEDULER_", cli_prog_name="scheduler-svc")

    listen: str = "127.0.0.1:7300"
    """host:port for frontends and workers."""
    health: str = ""
    """host:port where only health checks are answered, in plaintext, for probes that speak no TLS: kubelet's. Empty:
    they are answered on the port of everything else alone."""
    lease: str = ""
    """What makes one of several schedulers the leader: file:PATH (on one host), kubernetes:NAMESPACE/NAME (a Lease
    object). The others stand by: everything loaded, until the lease is theirs. Empty: there is one scheduler, and it
    leads; with standby, a locked file of this user on this host."""
    standby: bool = False
    """This is one of several schedulers, the first one too. Needs nothing else on one host; lease says it as well."""
    lease_duration_s: int = Field(3, ge=2, le=60)
    """How long a lease in Kubernetes holds without being renewed, in seconds; after so long the next one leads.
    It is renewed three times as often."""
    advertise: str | None = None
    """host:port at which this scheduler is reached, told to those who ask a standby. Unset: the one it listens on."""
    tenants: str = ""
    """File with the limits and weights of tenants, TOML or JSON; read again when it changes. Empty: there are none."""
    drain_s: float = Field(2.0, ge=0)
    """How long running calls may go on when the service is told to stop, in seconds."""

    @property
    def plaintext_addresses(self) -> tuple[str, ...]:
        """Where it listens in plaintext."""
        links = () if self.has_certificate else (self.listen,)
        return (*links, *self.plaintext_metrics)

    @field_validator("prefill_hand_off", mode="before")
    @classmethod
    def _refuse_removed(cls, value: object) -> object:
        if (sentence := refusal(f"SIGNALBOX_SCHEDULER_PREFILL_HAND_OFF={value}")) is not None:
            raise ValueError(sentence)
        return value

    @field_validator("lease")
    @classmethod
    def _check_lease(cls, lease: str) -> str:
        parse_lease(lease)
        return lease

    @field_validator("advertise")
    @classmethod
    def _check_advertise(cls, advertise: str | None) -> str | None:
        return advertise if advertise is None else read_address(advertise)

    @property
    def contended_lease(self) -> str:
        """The lease that several schedulers want; empty: there is one scheduler."""
        return self.lease or (f"file:{user_lease()}" if self.standby else "")

    def address(self, port: int) -> str:
        """Where others reach a scheduler that listens on `port`. Raises StartupError when that is not known."""
        if self.advertise is not None:
            return self.advertise
        host = self.listen.rpartition(":")[0]
        if self.contended_lease and host.strip("[]") in {"", "0.0.0.0", "::"}:
            raise StartupError(
                f"--listen {self.listen} is no address to tell others; add --advertise HOST:PORT"
            )
        return f"{host}:{port}"
