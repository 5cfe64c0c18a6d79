"""Settings of the worker service."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from signalbox.config import Settings


class WorkerSettings(Settings):
    """A worker of signalbox: owns its requests, runs the model, sends tokens straight to frontends."""

    model_config = SettingsConfigDict(env_prefix="SIGNALBOX_WORKER_", cli_prog_name="worker-svc")

    scheduler: str = "127.0.0.1:7300"
    """host:port of the scheduler."""
    listen: str = "127.0.0.1:7310"
    """host:port for frontends."""
    advertise: str | None = None
    """host:port at which frontends reach this worker. Unset: the one it listens on."""
    metrics: str = ""
    """host:port of Prometheus metrics at /metrics; port 0: any free one. Empty: none are served."""
    worker_id: str = "worker-0"
    """Stable name of this worker; a restarted worker keeps it."""
    runner: Literal["torch", "sim"] = "torch"
    """torch runs the model; sim only simulates one (tokens are hashes, for scale and protocol tests)."""
    model: Path | None = None
    """Directory of the model: config.json, safetensors, tokenizer.json. Required by the torch runner."""
    served_model_name: str | None = None
    """Name that clients use. Unset: the directory's name, or "sim"."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of weights and KV cache. auto: bfloat16 where the hardware has instructions for it."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the model runs."""
    threads: int | None = Field(None, ge=1)
    """CPU threads of the model. Unset: one less than there are cores, so that the services have one."""
    num_blocks: int | None = Field(None, ge=1)
    """KV blocks. Unset: as many as kv_cache_memory holds."""
    num_host_blocks: int = Field(0, ge=0)
    """KV blocks of the host tier, where blocks go that the device has to evict. 0: no host tier."""
    block_size: int = Field(16, ge=1)
    """Tokens per KV block."""
    kv_cache_memory: int | None = Field(None, ge=1)
    """Bytes for the KV cache. Unset: a share of the free memory."""
    max_model_len: int | None = Field(None, ge=2)
    """Longest prompt plus output in tokens. Unset: what the model was made for."""
    num_slots: int = Field(512, ge=1, le=65_535)
    """Requests that may be here at a time, preempted ones included."""
    max_num_batched_tokens: int = Field(8192, ge=1)
    """Largest batch that the runner takes, in tokens."""
    outbound_log_bytes: int = Field(64 << 20, ge=1)
    """Unread output kept per frontend; above it the frontend counts as lost."""
    frontend_timeout_s: float = Field(30.0, gt=0)
    """How long a frontend with unread output may have no stream before it counts as lost, in seconds."""
    step_timeout_s: float = Field(120.0, gt=0)
    """A step that runs longer makes the worker unhealthy, in seconds."""
    sim_base_ms: float = Field(5.0, ge=0)
    """Sim runner: duration of an empty step, in milliseconds."""
    sim_token_ms: float = Field(0.02, ge=0)
    """Sim runner: duration per token of a step, in milliseconds."""
    sim_context_ms: float = Field(0.0, ge=0)
    """Sim runner: duration per token of context, in milliseconds."""
    sim_vocab_size: int = Field(4096, ge=2)
    """Sim runner: number of different tokens."""
    sim_max_draft_tokens: int = Field(0, ge=0, le=32)
    """Sim runner: draft tokens that it makes and verifies per step."""
    sim_acceptance: float = Field(0.7, ge=0, le=1)
    """Sim runner: share of draft tokens that are right."""
