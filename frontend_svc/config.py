"""Settings of the frontend, and the limits that requests are checked against."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from signalbox.config import Settings


def _check_address(value: str) -> str:
    """`host:port`; an IPv6 host stands in brackets."""
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError("must be host:port")
    return value


Address = Annotated[str, AfterValidator(_check_address)]


@dataclass(frozen=True)
class Limits:
    """How large a request may be."""

    max_stop_strings: int = 16
    """Stop strings per request."""
    max_stop_string_chars: int = 256
    """Characters of one stop string."""
    max_stop_token_ids: int = 256
    """Stop tokens per request."""
    max_logit_bias: int = 1024
    """Tokens with a bias per request."""
    max_open_requests: int = 4096
    """Requests that may be open at one time."""
    max_backlog_tokens: int = 512
    """Output tokens that a client may leave unread before its request is paused."""


class FrontendSettings(Settings):
    """The frontend of signalbox: public gRPC and OpenAI-compatible HTTP."""

    model_config = SettingsConfigDict(env_prefix="SIGNALBOX_FRONTEND_", cli_prog_name="frontend-svc")

    scheduler: Address = "127.0.0.1:7300"
    """host:port of the scheduler."""
    http: Address = "127.0.0.1:8000"
    """host:port at which the OpenAI-compatible API listens; port 0: any free one."""
    grpc: Address = "127.0.0.1:7301"
    """host:port at which the gRPC API listens; port 0: any free one."""
    model: Path | None = None
    """Directory with tokenizer.json and tokenizer_config.json. Unset: only token ids are taken and given."""
    served_model_name: str = ""
    """The one model to serve, as its workers call it. Empty: every model whose tokenizer is ours."""
    name: str = ""
    """Label of this process in logs and metrics, e.g. the pod's name."""
    max_request_bytes: Annotated[int, Field(ge=1024)] = 8 << 20
    """Largest HTTP request body, in bytes."""
    max_stop_strings: Annotated[int, Field(ge=0, le=1024)] = Limits.max_stop_strings
    """Most stop strings of a request."""
    max_stop_string_chars: Annotated[int, Field(ge=1)] = Limits.max_stop_string_chars
    """Longest stop string, in characters."""
    max_stop_token_ids: Annotated[int, Field(ge=0)] = Limits.max_stop_token_ids
    """Most stop tokens of a request."""
    max_logit_bias: Annotated[int, Field(ge=0)] = Limits.max_logit_bias
    """Most tokens with a logit bias in a request."""
    max_open_requests: Annotated[int, Field(ge=1)] = Limits.max_open_requests
    """Most requests open at one time; further ones are refused."""
    max_backlog_tokens: Annotated[int, Field(ge=1)] = Limits.max_backlog_tokens
    """Output tokens that a slow client may leave unread before its request is paused."""
    replay_limit: Annotated[int, Field(ge=0)] = 3
    """How often a request is submitted anew after its worker or scheduler lost it."""
    queue_s: Annotated[float, Field(ge=0)] = 5.0
    """How long a new request waits for the link to the scheduler before it is refused, in seconds."""
    stall_s: Annotated[float, Field(gt=0)] = 120.0
    """How long a request may be paused for a client that reads nothing before it is cancelled, in seconds."""
    drain_s: Annotated[float, Field(ge=0)] = 30.0
    """How long open requests may go on after SIGTERM, in seconds."""

    @property
    def limits(self) -> Limits:
        """The limits on requests, as one value."""
        return Limits(**{name: getattr(self, name) for name in Limits.__dataclass_fields__})
