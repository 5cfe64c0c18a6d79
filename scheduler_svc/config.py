"""Settings of the scheduler service."""

from __future__ import annotations

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.policy.spec import parse_policy
from signalbox.config import Settings


class SchedulerSettings(Settings):
    """The scheduler of signalbox: decides which blocks and which steps, and never sees a token."""

    model_config = SettingsConfigDict(env_prefix="SIGNALBOX_SCHEDULER_", cli_prog_name="scheduler-svc")

    listen: str = "127.0.0.1:7300"
    """host:port for frontends and workers."""
    metrics: str = ""
    """host:port of Prometheus metrics at /metrics; port 0: any free one. Empty: none are served."""
    max_num_seqs: int | None = Field(None, ge=1)
    """Most running requests per worker. Unset: 256, or what the token budget and the worker's slots allow."""
    max_num_batched_tokens: int | None = Field(None, ge=1)
    """Token budget of a step. Unset: 2048, or what the worker's runner takes if that is less."""
    max_model_len: int | None = Field(None, ge=2)
    """Longest prompt plus output in tokens. Unset: what the worker's model allows."""
    long_prefill_token_threshold: int = Field(0, ge=0)
    """Longest prefill chunk of one request per step. 0: only the budget limits it."""
    max_num_partial_prefills: int = Field(0, ge=0)
    """Most prompts that may be partly computed at once. 0: no limit."""
    enable_chunked_prefill: bool = True
    """Without it a prompt runs in one step, and prompts above the budget are refused."""
    enable_prefix_caching: bool = True
    """Reuse KV blocks of equal prefixes."""
    policy: str = "fcfs"
    """Order of the requests. fcfs: by arrival. priority: lower priority numbers first; they may displace others. fair:
    tenants share by what they have had. Joined by +, as in priority+fair; the arrival decides the rest."""
    tenants: str = ""
    """File with the limits and weights of tenants, TOML or JSON; read again when it changes. Empty: there are none."""
    aging_s: float = Field(60.0, ge=0)
    """Seconds of waiting that raise a request by one class. 0: never."""
    fair_input_weight: float = Field(1.0, gt=0)
    """What a computed prompt token costs a tenant, in virtual tokens."""
    fair_output_weight: float = Field(2.0, gt=0)
    """What an output token costs."""
    fair_credit: float = Field(2000.0, ge=0)
    """Virtual tokens that a tenant may have saved up when one of its requests waits again while others of it run."""
    placement_lookahead: int = Field(8, ge=1)
    """Waiting requests that a worker may leave to others before it stops looking for one to take."""
    affinity_wait_ms: float = Field(50.0, ge=0)
    """How long a request may be left for a worker that has more of its prompt cached, in milliseconds."""
    affinity_max_skips: int = Field(16, ge=0)
    """How many steps of other workers may leave it."""
    affinity_min_tokens: int = Field(64, ge=1)
    """Cached tokens that make another worker worth waiting for."""
    max_inflight_steps: int = Field(2, ge=1, le=16)
    """Steps sent ahead per worker: 1 is synchronous scheduling, 2 is asynchronous."""
    just_in_time_steps: bool = True
    """Send a step ahead only just in time, so that requests that arrive meanwhile still make it."""
    num_speculative_tokens: int = Field(0, ge=0, le=32)
    """Draft tokens allowed per request and step, at most what the worker can verify."""
    watermark_blocks_per_seq: int = Field(2, ge=0)
    """Free blocks kept per running request when another one is admitted or resumed."""
    max_waiting: int = Field(100_000, ge=1)
    """Requests that may wait; more are refused."""
    no_worker_grace_s: float = Field(30.0, ge=0)
    """How long requests may wait for a model none of whose workers is there, in seconds."""
    worker_grace_s: float = Field(10.0, ge=0)
    """How long a worker may be gone before its requests are lost, in seconds."""
    frontend_grace_s: float = Field(10.0, ge=0)
    """How long a frontend may be gone before its requests are cancelled, in seconds."""
    start_grace_s: float = Field(5.0, ge=0)
    """How long a new scheduler waits for workers to say hello before unknown requests are lost, in seconds."""
    drain_s: float = Field(2.0, ge=0)
    """How long running calls may go on when the service is told to stop, in seconds."""

    @field_validator("policy")
    @classmethod
    def _check_policy(cls, policy: str) -> str:
        parse_policy(policy)
        return policy

    def core(self) -> SchedulerConfig:
        """What the core has to know of them."""
        names = SchedulerConfig.__dataclass_fields__
        return SchedulerConfig(**{name: getattr(self, name) for name in names})
