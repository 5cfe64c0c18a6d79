"""Settings of the frontend, and the limits that requests are checked against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import SettingsConfigDict

from frontend_svc.guard.addresses import TrustedProxies, read_networks
from signalbox.grammar.settings import FormSettings
from signalbox.links.addresses import read_addresses
from signalbox.telemetry.settings import MetricsSettings


def _check_address(value: str) -> str:
    """`host:port`; an IPv6 host stands in brackets."""
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError("must be host:port")
    return value


def _check_face(value: str) -> str:
    """`host:port`, or nothing for a face that is not served."""
    return value and _check_address(value)


def _check_addresses(value: str) -> str:
    read_addresses(value)
    return value


def _check_networks(value: str) -> str:
    read_networks(value)
    return value


FaceAddress = Annotated[str, AfterValidator(_check_face)]


@dataclass(frozen=True)
class Limits:
    """How large a request may be.

    The limits on lists of parameters and on choices are constants: each request is far below them, and they bound what
    one request costs the frontend and a step. The others are settings of an operator, by the same names."""

    max_stop_strings: int = 16
    """Most stop strings of a request."""
    max_stop_string_chars: int = 256
    """Characters of one stop string."""
    max_stop_token_ids: int = 256
    """Most stop tokens of a request."""
    max_logit_bias: int = 1024
    """Tokens with a bias per request."""
    max_open_requests: int = 4096
    """Requests that may be open at one time."""
    max_backlog_tokens: int = 512
    """Output tokens that a client may leave unread before its request is paused."""
    max_choices: int = 1024
    """Choices of one call: prompts times choices of each."""
    max_bad_words: int = 64
    """Most bad words of a request."""
    max_bad_word_chars: int = 256
    """Characters of one bad word."""
    max_prompt_tokens: int = 0
    """Tokens of one prompt; 0: as many as the model takes."""
    max_messages: int = 4096
    """Messages of one conversation."""
    max_prompt_chars: int = 16 << 20
    """Characters that a chat template may make of a conversation."""
    max_template_s: float = 10.0
    """How long a chat template may take for a conversation, in seconds."""


class FrontendSettings(MetricsSettings, FormSettings):
    """The frontend of signalbox: public gRPC and OpenAI-compatible HTTP."""

    model_config = SettingsConfigDict(env_prefix="SIGNALBOX_FRONTEND_", cli_prog_name="frontend-svc")

    scheduler: Annotated[str, AfterValidator(_check_addresses)] = "127.0.0.1:7300"
    """host:port of the scheduler; several, joined by commas, are asked who leads."""
    http: FaceAddress = "127.0.0.1:8000"
    """host:port at which the OpenAI-compatible API listens; port 0: any free one. Empty: this process does not serve
    it, and settings that are for it alone have no effect."""
    grpc: FaceAddress = "127.0.0.1:7301"
    """host:port at which the gRPC API listens; port 0: any free one. Empty: this process does not serve it."""
    health: FaceAddress = ""
    """host:port where only probes are answered, by plain HTTP: GET /live and GET /ready. Empty: there is no such
    port."""
    reuse_port: bool = False
    """Let other frontend processes listen on the same two ports; each connection goes to any one of them."""
    public_tls_cert: Path | None = None
    """File with the certificate that clients are shown over HTTP and gRPC, PEM. Read again when it changes. Unset:
    clients talk in plaintext, keys included."""
    public_tls_key: Path | None = None
    """File with its private key, PEM."""
    public_tls_ca: Path | None = None
    """File with the authority, PEM, of which clients have to show a certificate, beside any key. Unset: they need
    none."""
    page: bool = True
    """Whether to serve the page with playground and board at /."""
    vllm_faces: bool = False
    """Whether to speak with vllm-router and smg, on the gRPC port: whoever reaches it may then abort any request whose
    id it knows, and fetch the tokenizer's files."""
    model: Path | None = None
    """Directory with tokenizer.json and tokenizer_config.json. Unset: only token ids are taken and given."""
    chat_template: Path | None = None
    """File with the chat template to use instead of the model's own. Unset: those of the model's directory."""
    sampling_defaults: Literal["model", "none"] = "model"
    """Where temperature, top_p, top_k, min_p, repetition_penalty and max_tokens come from that a request leaves out:
    `model` is the generation_config.json of the model's directory, `none` our own of the API."""
    served_model_name: str = ""
    """The one model to serve, as its workers call it; further names that mean it follow behind commas, and answers say
    the first. Empty: every model whose tokenizer is ours."""
    unknown_fields: Literal["refuse", "warn"] = "refuse"
    """What to do with a field of a request over HTTP that nobody here knows: refuse the request, or tell the log once
    and go on without it. A field that is known and cannot be served is refused in any case."""
    allowed_origins: str = ""
    """Origins, joined by commas, whose pages may call over HTTP from a browser; * for all of them. Empty: none."""
    allowed_hosts: str = ""
    """Names under which requests may come to a server on loopback without keys, beside localhost and addresses of
    loopback; joined by commas, without ports, * for all. Any other name may be a web page's that leads here."""
    max_connections: Annotated[int, Field(ge=0)] = 0
    """Most HTTP connections open at one time; 0: three quarters of the files that this process may have open, less
    256."""
    max_grpc_connections: Annotated[int, Field(ge=0)] = 0
    """Most gRPC connections open at one time; 0: the other quarter."""
    trusted_proxies: Annotated[str, AfterValidator(_check_networks)] = ""
    """Addresses and networks of gateways, joined by commas: their connections are not counted by address. Any other
    IPv4 address, or /64 of IPv6, has 1,024 connections over HTTP and 64 over gRPC at most. With IPv6 all pods of a
    node may share one /64: name the pods' network here where many clients are pods."""
    memory_limit_bytes: Annotated[int, Field(ge=0)] = 0
    """Most bytes of memory that this process may have: above 70 % it takes no new connection, above 85 % it ends its
    calls and then itself, to be started again. 0: the limit of its memory cgroup; without one it is not watched."""
    bans_file: Path | None = None
    """File in which a frontend that serves gRPC and ends for want of memory leaves the addresses that had filled it, so
    that the process after it refuses them for the rest of 30 s. Unset: they are forgotten."""
    max_body_bytes_at_once: Annotated[int, Field(ge=1 << 20)] = 128 << 20
    """Most bytes of HTTP request bodies that may be on their way at one time; further ones are refused."""
    reasoning_parser: str = "auto"
    """How the model writes its reasoning, e.g. qwen3; auto: as its template and vocabulary show, none: not at all."""
    tool_parser: str = "auto"
    """How the model writes calls of tools, e.g. hermes; auto: as its template and vocabulary show, none: not at all."""
    reasoning_field: Literal["reasoning", "reasoning_content", "both"] = "reasoning"
    """How chat completions call reasoning in messages and deltas: vLLM's and OpenRouter's name, or DeepSeek's, which
    many clients of 2025 read."""
    name: str = ""
    """Label of this process in logs and metrics, e.g. the pod's name."""
    log_requests: Literal["off", "ends", "prompts"] = "ends"
    """Which lines the log has of requests: none, one for each that ends or is refused, or one with the beginning of its
    prompt as well."""
    key_file: Path | None = None
    """File with the API keys that calls need, one line for each (`signalbox key new`); read again when it changes.
    Unset: anybody may call."""
    metrics: str = ""
    """host:port of Prometheus metrics at /metrics, for a port that is not public; port 0: any free one. Empty: they are
    on the HTTP port, unless other processes share that (--reuse-port): then there are none."""
    metrics_need_key: bool = False
    """Whether /metrics of the HTTP port asks for an admin key."""
    ring_metrics: bool = False
    """Whether /metrics also shows the load of the whole ring under vLLM's names, for gateways that pick a frontend by
    them. The scheduler then makes a board twice a second."""
    share_prefix_cache: bool = False
    """Whether tenants use each other's cached blocks. They can then tell from the time to the first token whether
    somebody else has sent the same prompt."""
    max_request_bytes: Annotated[int, Field(ge=1024)] = 8 << 20
    """Largest HTTP request body, and largest gRPC message, in bytes."""
    max_prompt_tokens: Annotated[int, Field(ge=0)] = Limits.max_prompt_tokens
    """Most tokens of a prompt; 0: as many as the model takes."""
    max_messages: Annotated[int, Field(ge=1)] = Limits.max_messages
    """Most messages of a conversation."""
    max_prompt_chars: Annotated[int, Field(ge=1024)] = Limits.max_prompt_chars
    """Most characters that the chat template may make of a conversation."""
    max_template_s: Annotated[float, Field(gt=0)] = Limits.max_template_s
    """How long the chat template may take for a conversation before that is refused, in seconds; waiting for its turn
    included."""
    max_open_requests: Annotated[int, Field(ge=1)] = Limits.max_open_requests
    """Most requests open at one time; further ones are refused."""
    max_open_bytes: Annotated[int, Field(ge=1 << 20)] = 256 << 20
    """Most bytes that prompts, block names, forms and allowed tokens of open requests may hold; further ones are
    refused."""
    max_backlog_tokens: Annotated[int, Field(ge=1)] = Limits.max_backlog_tokens
    """Output tokens that a slow client may leave unread before its request is paused."""
    replay_limit: Annotated[int, Field(ge=0)] = 1
    """Crashes of its worker that a request may have caused and is forgiven, without a new token between them; other
    losses do not count."""
    queue_s: Annotated[float, Field(ge=0)] = 5.0
    """How long a new request waits for the link to the scheduler before it is refused, in seconds."""
    lost_scheduler_s: Annotated[float, Field(gt=0)] = 60.0
    """How long a request that was submitted waits without a scheduler and without a new token before it ends, in
    seconds."""
    scheduler_silence_ms: Annotated[int, Field(ge=1000)] = 1500
    """How long a scheduler may say nothing before it is given up and looked for anew, in milliseconds."""
    worker_silence_ms: Annotated[int, Field(ge=1000)] = 1500
    """How long a worker may say nothing before it is reported as silent, in milliseconds."""
    unreachable_s: Annotated[float, Field(gt=0)] = 3.0
    """How long a listed worker may be without an output stream before it is reported as unreachable, in seconds."""
    stall_s: Annotated[float, Field(gt=0)] = 120.0
    """How long a client may read nothing before its request is cancelled, or the connection of its answer ended, in
    seconds."""
    drain_s: Annotated[float, Field(ge=0)] = 30.0
    """How long open requests may go on after SIGTERM, in seconds."""

    files_dir: Path | None = None
    """Directory on a local disk for /v1/files and /v1/batches; all frontends of this machine share it. Unset: there are
    neither."""
    files_max_bytes: Annotated[int, Field(ge=1)] = 10 << 30
    """Most bytes that files and results of batches may take in that directory; further ones are refused, and batches
    wait."""
    files_tenant_max_bytes: Annotated[int | None, Field(ge=1)] = None
    """Most bytes of these that one tenant may take. Unset: half of them where there are keys, all without."""
    file_max_bytes: Annotated[int, Field(ge=1)] = 512 << 20
    """Largest file, in bytes."""
    files_expire_s: Annotated[int, Field(ge=60)] = 30 * 86_400
    """How long files and ended batches stay whose clients do not say, in seconds."""
    batch_max_lines: Annotated[int, Field(ge=1, le=1_000_000)] = 100_000
    """Most requests of a batch."""
    batch_concurrency: Annotated[int, Field(ge=1, le=4096)] = 32
    """Most requests of batches that this process has open at one time."""
    batch_concurrency_beside: Annotated[int, Field(ge=1, le=4096)] = 4
    """How many of them it begins while other requests are open here; those that run are left to end."""
    batch_priority: Annotated[int, Field(ge=-1000, le=1000)] = 1000
    """Priority number of requests of batches; the scheduler's policy has to have `priority` in it for it to count."""

    @property
    def plaintext_addresses(self) -> tuple[str, ...]:
        """Where it listens in plaintext."""
        public = () if self.public_tls_cert is not None else self.faces
        return (*public, *self.plaintext_metrics)

    @property
    def files_tenant_bytes(self) -> int:
        """Most bytes of files and results of batches that one tenant may take."""
        return self.files_tenant_max_bytes or max(1, self.files_max_bytes // 2)

    @property
    def proxies(self) -> TrustedProxies:
        """Whose connections are not counted."""
        return TrustedProxies(read_networks(self.trusted_proxies))

    @property
    def faces(self) -> tuple[str, ...]:
        """host:port of each public face that is served."""
        return tuple(filter(None, (self.http, self.grpc)))

    @model_validator(mode="after")
    def _serves_something(self) -> Self:
        if not self.faces:
            raise ValueError("http and grpc are both empty: a frontend serves at least one of them")
        return self

    @property
    def ids(self) -> Mapping[str, str]:
        """What names this process in each JSON object that it logs."""
        return {"frontend": self.name}

    @property
    def reasoning_fields(self) -> tuple[str, ...]:
        """Names under which reasoning is told."""
        both = ("reasoning", "reasoning_content")
        return both if self.reasoning_field == "both" else (self.reasoning_field,)

    @property
    def limits(self) -> Limits:
        """The limits on requests, as one value."""
        names = Limits.__dataclass_fields__.keys() & type(self).model_fields.keys()
        return Limits(**{name: getattr(self, name) for name in names})
