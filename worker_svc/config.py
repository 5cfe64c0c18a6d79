"""Settings of the worker service."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import ByteSize, Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from signalbox.grammar.settings import FollowedFormSettings
from signalbox.links.addresses import is_loopback, read_address, read_addresses
from signalbox.links.tls.roles import Role
from signalbox.protocol.number_types import FLOAT16, NO_FLOAT16, NumberType
from signalbox.protocol.speculation import parse_speculation
from signalbox.runtime.config import flag_of
from signalbox.telemetry.settings import MetricsSettings
from worker_svc.ranks.place import place_of
from worker_svc.steps.mask_pool import DEFAULT_THREADS
from worker_svc.transfer.channels.names import ALL, read_names

HAND_OVER_S = 20.0
"""Seconds in which a worker that is told to stop hands its requests over, where nothing else is said."""


class WorkerSettings(MetricsSettings, FollowedFormSettings):
    """A worker of signalbox: owns its requests, runs the model, sends tokens straight to frontends."""

    model_config = SettingsConfigDict(env_prefix="SIGNALBOX_WORKER_", cli_prog_name="worker-svc")

    scheduler: str = "127.0.0.1:7300"
    """host:port of the scheduler, or a comma-separated list of them: one leads, and the others stand by."""
    behind_relay: bool = False
    """The address of the scheduler is a relay's. Needs to be said only with certificates, in which it shows."""
    scheduler_silence_ms: int = Field(1500, ge=750)
    """A scheduler that says nothing for so long is taken for gone, in milliseconds: running requests go on with lent
    blocks, while the worker looks for one that leads."""
    listen: str = "127.0.0.1:7310"
    """host:port at which frontends are served."""
    health: str = ""
    """host:port where only health checks are answered, in plaintext, for probes that speak no TLS: kubelet's. Empty:
    they are answered on the port of everything else alone."""
    advertise: str | None = None
    """host:port at which frontends reach this worker. Unset: the one it listens on."""
    worker_id: str = "worker-0"
    """Stable name of this worker; a restarted worker keeps it."""
    runner: Literal["torch", "sim"] = "torch"
    """torch runs the model; sim only simulates one (tokens are hashes, for scale and protocol tests)."""
    model: Path | None = None
    """Directory of the model: config.json, safetensors, tokenizer.json. Required by the torch runner."""
    served_model_name: str | None = None
    """Name that clients use. Unset: the directory's name, or "sim"."""
    speculative: str | None = None
    """Drafts of next tokens: ngram[:K] looks the last tokens up in prompt and output, draft[:K] asks a draft model;
    at most K per request and step. Unset: none. The scheduler has to allow them: num_speculative_tokens."""
    draft_model: Path | None = None
    """Directory of the draft model, which has the same tokenizer. Unset: the folder draft in the model's."""
    ngram_min: int = Field(2, ge=1)
    """ngram: fewest tokens whose earlier occurrence is a match."""
    ngram_max: int = Field(5, ge=1)
    """ngram: a match of so many tokens is as good as a longer one."""
    dtype: NumberType = "auto"
    """Type of weights and KV cache. auto: bfloat16 where the hardware has instructions for it, else float32."""
    quantization: Literal["auto", "none", "int8", "int4"] = "auto"
    """Linear layers on a CPU. auto: those that a checkpoint keeps as whole numbers stay so, unless dtype is float32.
    none: never. int8, int4: all that are not are rounded, in groups of 32; the head to 8 bits."""
    device: Literal["cpu", "cuda"] = "cpu"
    """The device on which the model runs."""
    attention: Literal["auto", "triton"] = "auto"
    """auto: Triton's kernels on a GPU, compiled ones on the CPU. triton: refused where it cannot run."""
    allow_slow_kernels: bool = False
    """On a GPU where Triton is missing or cannot launch a kernel, attention runs row by row, some 50 times as slow.
    Unset: the worker does not start there."""
    compile_only: Path | None = None
    """On a GPU: folder that gets the compiled kernels that serving with the other settings needs; then the process
    ends. A worker finds them where TRITON_CACHE_DIR names the same path. Unset: the worker serves."""
    threads: int | None = Field(None, ge=1)
    """Most CPU threads of the model; steps of few tokens may take fewer. Unset: one for each physical
    core, or what a quota allows; one less where the services would have none left. The log says why."""
    mask_threads: int = Field(DEFAULT_THREADS, ge=1, le=64)
    """Threads that make the masks of outputs that follow a form, beside the model. Of two or more, one makes none but
    those that the step waits for: masks that take long go on in the others."""
    tensor_parallel: int = Field(1, ge=1, le=64)
    """Processes among which the model is divided: each has a part of its weights and of its KV cache, and `threads` is
    for each of them. They are started here, on this host; or each by itself, where the environment says which rank it
    is, as torchrun and LeaderWorkerSet do."""
    pipeline_parallel: int = Field(1, ge=1, le=16)
    """Stages among which the model's layers are divided, each of as many processes as `tensor_parallel` says: a step
    passes through them one after the other, and as many steps are on their way."""
    expert_parallel: bool = False
    """Whether each of the `tensor_parallel` processes of a stage has some experts of a layer whole, not a part of
    each."""
    collectives: Literal["auto", "shared-memory", "gloo"] = "auto"
    """How these processes add up what each has computed. auto: through shared memory, where the compiled kernels are
    there; else over gloo, torch's own, by TCP on the loopback interface. On GPUs it is NCCL."""
    rank_listen: str | None = None
    """host:port where rank 0 waits for ranks of other hosts, until all have come. Unset: any address, and the port that
    the environment names (MASTER_PORT; 7320 in a LeaderWorkerSet); without such an environment nowhere."""
    num_blocks: int | None = Field(None, ge=1)
    """KV blocks. Unset: kv_cache_memory or gpu_memory_utilization, else a share of the free memory."""
    num_host_blocks: int = Field(0, ge=0)
    """KV blocks of the host tier, where blocks go that the device has to evict. 0: no host tier."""
    kv_disk: Path | None = None
    """Directory of the disk tier, where KV blocks outlive the process; workers of one host, or of several, may share
    it. Unset: no disk tier."""
    kv_disk_bytes: ByteSize = Field(ByteSize(16 << 30), ge=1 << 20)
    """Most bytes of that directory, in bytes or with a unit, like 100GiB. What was used least is deleted."""
    block_size: int = Field(16, ge=1)
    """Tokens in a KV block."""
    kv_cache_memory: ByteSize | None = Field(None, ge=1)
    """Memory for the KV cache, in bytes or with a unit, like 2GiB; instead of num_blocks."""
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    """Share of the GPU's memory, or of its slice, that is in use at most, by whomever: model, KV cache, largest step,
    CUDA graphs, other processes; instead of num_blocks."""
    mean_request_tokens: int | None = Field(None, ge=1)
    """Prompt and output of a request, on average: a cache is divided for it where some layers look back so far and no
    farther. Unset: 4096, or the longest request if that is less."""
    max_model_len: int | None = Field(None, ge=2)
    """Longest prompt plus output in tokens. Unset: what the model was made for."""
    num_slots: int | None = Field(None, ge=1, le=65_535)
    """Requests that may be here at a time, preempted ones included. Unset: 512, fewer where the recurrent states
    of so many would take more than a share of the free memory."""
    num_checkpoints: int | None = Field(None, ge=0)
    """Recurrent states that are kept for others to go on from, beside those of slots. 0: prompts begin at their first
    token. Unset: two for each slot, fewer where these would take more than a share of the memory that is left."""
    checkpoints_of_prompts_only: bool = False
    """Whether states that decoding made are left out of these: others go on from computed prompts alone. For models
    whose states do not come out of decoding bit for bit as they come out of a prompt (docs/models.md)."""
    max_num_batched_tokens: int = Field(8192, ge=1)
    """Largest batch that the runner takes, in tokens."""
    outbound_log_bytes: int = Field(64 << 20, ge=1)
    """Unread output kept per frontend; above it the frontend counts as lost."""
    frontend_timeout_s: float = Field(30.0, gt=0)
    """How long a frontend with unread output may have no stream before it counts as lost, in seconds."""
    drain_s: float | None = Field(None, ge=0)
    """How long running requests may go on when the worker is told to stop, in seconds; new ones go to other workers,
    and are refused where there are none. 0: running ones go on elsewhere at once, computed again, and new ones wait
    for a worker. Unset: 20 with hand_off, which moves them away in that time, and 0 without."""
    hand_off: bool = False
    """Whether requests that run here may go on at other workers of this identity, and theirs here, where the scheduler
    says so: of a worker that drains, or that an operator moves. On GPUs where one process has the whole model."""
    role: Literal["both", "prefill", "decode"] = "both"
    """What the worker is there for, where prompts and decoding are on workers of their own; `signalbox role` changes it
    while it runs. It does the other thing too where nobody else can. Needs hand_off."""
    transfer_channels: str = ",".join(ALL)
    """How KV blocks of requests that move are offered and taken, with commas, the best first: shared-memory, tcp.
    Empty: in the messages of the control stream alone, which are there in any case."""
    transfer_listen: str | None = None
    """host:port where other workers fetch KV blocks of requests that move to them; port 0: any. Unset: the host of
    listen, any port. Empty: they come by shared memory, or in the messages of the control stream."""
    transfer_checksums: bool = False
    """Whether blocks that come to this worker over TCP are checked (CRC-32), which takes more time than they do."""
    transfer_sockets_dir: Path | None = None
    """Directory in which a directory is made for the socket by which workers of this machine and user map the KV
    cache. Unset: where temporary files are."""
    step_timeout_s: float = Field(120.0, gt=0)
    """How long any step may run, in seconds: a longer one makes the worker unhealthy, and its guardian ends it. Where
    prompts take minutes a step, more."""
    bad_row_limit: int = Field(3, ge=1)
    """So many requests in a row whose numbers are not finite (NaN), without a good row between, end the worker: its
    device is not to be trusted."""
    sim_base_ms: float = Field(5.0, ge=0)
    """Sim runner: duration of an empty step, in milliseconds."""
    sim_token_ms: float = Field(0.02, ge=0)
    """Sim runner: duration per token of a step, in milliseconds."""
    sim_copy_ms_per_block: float = Field(0.0, ge=0)
    """Sim runner: duration of a block's copy between device and host tier, in milliseconds."""
    sim_vocab_size: int = Field(4096, ge=2)
    """Sim runner: number of different tokens."""
    sim_weights: str = Field("", max_length=64)
    """Sim runner: name of its weights; workers with other names make other tokens. Empty: they have none."""
    sim_max_draft_tokens: int = Field(0, ge=0, le=32)
    """Sim runner: draft tokens that it makes and verifies per step."""
    sim_fail_token: int | None = Field(None, ge=0)
    """Sim runner: the simulated model fails on every request whose prompt contains this token. Unset: on none."""
    sim_fail_step: int | None = Field(None, ge=1)
    """Sim runner: the step of this number, counted from 1, fails with all of its requests. Unset: none does."""
    sim_break_step: int | None = Field(None, ge=1)
    """Sim runner: from the step of this number on, counted from 1, everything fails, as on a lost device. Unset:
    it is not lost."""
    sim_hang_token: int | None = Field(None, ge=0)
    """Sim runner: a step that computes a part of a prompt with this token hangs for sim_hang_ms. Unset: none does."""
    sim_hang_ms: float | None = Field(None, gt=0)
    """Sim runner: how long such a step hangs, in milliseconds. Needs sim_hang_token."""
    sim_nan_token: int | None = Field(None, ge=0)
    """Sim runner: a row that computes a part of a prompt with this token in that part has no finite numbers (NaN).
    Unset: none does."""
    sim_crash_token: int | None = Field(None, ge=0)
    """Sim runner: a step that computes a part of a prompt with this token in that part kills the process by SIGSEGV.
    Unset: none does."""

    @property
    def kernels(self) -> str:
        """`attention` for the runner: `any` where slow kernels are allowed."""
        return "any" if self.allow_slow_kernels and self.attention == "auto" else self.attention

    @property
    def plaintext_addresses(self) -> tuple[str, ...]:
        """Where it listens in plaintext."""
        links = () if self.has_certificate else (self.listen, *filter(None, [self.transfer_listen]))
        place = place_of(os.environ, self.num_ranks)
        # Certificates or not: what ranks add up goes between hosts by gloo, which knows none.
        own = self.rank_address
        between_hosts = (
            () if place is None else (place.leader, *([own] if own and not self.has_certificate else []))
        )
        return (*links, *between_hosts, *self.plaintext_metrics)

    @property
    def rank_address(self) -> str:
        """host:port where rank 0 waits for ranks that are started by themselves; empty: there are none such."""
        place = place_of(os.environ, self.num_ranks)
        if place is None or place.rank:
            return ""
        host = "127.0.0.1" if is_loopback(place.leader) else "0.0.0.0"
        return self.rank_listen or f"{host}:{place.port}"

    @property
    def channel_names(self) -> tuple[str, ...]:
        """The channels of blocks, the best first."""
        return read_names(self.transfer_channels)

    @property
    def transfer_address(self) -> str | None:
        """host:port where blocks are served over TCP, port 0: any; None: nowhere."""
        if self.transfer_listen is None:
            return f"{self.listen.rpartition(':')[0]}:0"
        return self.transfer_listen or None

    @property
    def ids(self) -> Mapping[str, str]:
        """What names this process in each JSON object that it logs."""
        return {"worker_id": self.worker_id}

    @property
    def upward(self) -> Role:
        """What the worker dials as its scheduler."""
        return Role.RELAY if self.behind_relay else Role.SCHEDULER

    @property
    def num_ranks(self) -> int:
        """Processes that have a part of the model."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def drain_time_s(self) -> float:
        """Seconds for what runs here when the worker is told to stop."""
        return self.drain_s if self.drain_s is not None else HAND_OVER_S * self.hand_off

    @field_validator("scheduler")
    @classmethod
    def _names_addresses(cls, text: str) -> str:
        read_addresses(text)
        return text

    @field_validator("advertise")
    @classmethod
    def _is_an_address(cls, text: str | None) -> str | None:
        return None if text is None else read_address(text)

    @field_validator("transfer_channels")
    @classmethod
    def _are_channels(cls, text: str) -> str:
        read_names(text)
        return text

    @field_validator("transfer_listen")
    @classmethod
    def _is_an_address_or_empty(cls, text: str | None) -> str | None:
        if text and text.rpartition(":")[2] != "0":
            return read_address(text)
        if text and not text.rpartition(":")[0]:
            raise ValueError(f"{text!r} is not HOST:PORT, such as 10.0.0.5:0")
        return text

    @field_validator("dtype", mode="before")
    @classmethod
    def _is_a_served_type(cls, name: object) -> object:
        if name in FLOAT16:
            raise ValueError(NO_FLOAT16)
        return name

    @field_validator("speculative")
    @classmethod
    def _can_be_read(cls, text: str | None) -> str | None:
        if text is not None:
            parse_speculation(text)
        return text

    @model_validator(mode="after")
    def _has_a_role_that_it_can_play(self) -> WorkerSettings:
        if self.role != "both" and not self.hand_off:
            raise ValueError(f"--role {self.role} needs --hand-off: requests move behind their prompts")
        return self

    @model_validator(mode="after")
    def _divides_what_can_be_divided(self) -> WorkerSettings:
        if self.expert_parallel and self.tensor_parallel == 1:
            raise ValueError(
                "--expert-parallel needs --tensor-parallel: experts are divided among its processes"
            )
        if self.num_ranks == 1:
            return self
        if self.runner == "sim":
            parallel = "tensor" if self.tensor_parallel > 1 else "pipeline"
            raise ValueError(
                f"--runner does not go with --{parallel}-parallel: the sim runner has no weights"
            )
        if self.device == "cuda" and self.pipeline_parallel > 1:
            raise ValueError("--device does not go with --pipeline-parallel: stages run on CPUs, so far")
        if self.device == "cuda" and self.hand_off:
            raise ValueError(
                "--hand-off does not go with --device cuda and --tensor-parallel: blocks do not travel in parts of GPUs"
            )
        if self.device == "cuda" and self.collectives != "auto":
            raise ValueError("--collectives does not go with --device: GPUs add up by NCCL")
        return self

    @model_validator(mode="after")
    def _speculates_one_way(self) -> WorkerSettings:
        method = self.speculative.partition(":")[0] if self.speculative else None
        if self.runner == "sim" and method is not None:
            raise ValueError("--speculative is for the torch runner; see --sim-max-draft-tokens")
        if self.draft_model is not None and method != "draft":
            raise ValueError("--draft-model is for --speculative draft")
        if self.ngram_min > self.ngram_max:
            raise ValueError(f"--ngram-min {self.ngram_min} is above --ngram-max {self.ngram_max}")
        return self

    @model_validator(mode="after")
    def _fails_as_it_can(self) -> WorkerSettings:
        tokens = ("sim_fail_token", "sim_hang_token", "sim_nan_token", "sim_crash_token")
        names = (*tokens, "sim_fail_step", "sim_break_step", "sim_hang_ms")
        chosen = [name for name in names if getattr(self, name) is not None]
        if chosen and self.runner != "sim":
            raise ValueError(
                f"{flag_of(chosen[0])} is for the sim runner; a real model cannot be asked to fail"
            )
        if (self.sim_hang_token is None) != (self.sim_hang_ms is None):
            raise ValueError("--sim-hang-token and --sim-hang-ms need each other: set both or none")
        for name in tokens:
            if (getattr(self, name) or 0) >= self.sim_vocab_size:
                raise ValueError(f"{flag_of(name)} names no token: there are {self.sim_vocab_size}")
        return self

    @model_validator(mode="after")
    def _sizes_the_cache_once(self) -> WorkerSettings:
        names = ("num_blocks", "kv_cache_memory", "gpu_memory_utilization")
        chosen = [name for name in names if getattr(self, name) is not None]
        if len(chosen) > 1:
            raise ValueError(
                f"{flag_of(chosen[0])} and {flag_of(chosen[1])} both size the KV cache: set one of them"
            )
        if self.runner == "sim" and chosen not in ([], ["num_blocks"]):
            raise ValueError(
                f"{flag_of(chosen[0])} is for the torch runner; --num-blocks sizes the simulated cache"
            )
        if self.device == "cpu" and self.allow_slow_kernels:
            raise ValueError("--allow-slow-kernels is for --device cuda")
        if self.compile_only is not None and (self.device == "cpu" or self.num_ranks > 1):
            raise ValueError("--compile-only is for --device cuda, and for a model in one process")
        if self.device == "cpu" and self.gpu_memory_utilization is not None:
            raise ValueError(
                "--gpu-memory-utilization is for --device cuda; on the CPU set --kv-cache-memory"
            )
        return self
