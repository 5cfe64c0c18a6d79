"""Errors in Anthropic's shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frontend_svc.api.anthropic.models import VERSION_HEADER
from signalbox.errors import (
    AuthenticationError,
    ContextLengthError,
    DeadlineExceededError,
    DuplicateRequestError,
    InvalidRequestError,
    PermissionDeniedError,
    RequestNotFoundError,
    RequestTooLargeError,
    ResourceExhaustedError,
    SignalboxError,
    UnavailableError,
    UnknownModelError,
    UnsupportedError,
    status_of,
)

PATHS = "/v1/messages"
"""Begins the paths whose callers read this shape."""
OVERLOADED = 529
"""Anthropic's own status for a service that cannot serve now; its clients try again."""

_KINDS: tuple[tuple[type[SignalboxError], str, int], ...] = (
    (UnknownModelError, "not_found_error", 404),
    (RequestTooLargeError, "request_too_large", 413),
    (InvalidRequestError, "invalid_request_error", 400),
    (UnsupportedError, "invalid_request_error", 400),
    (DuplicateRequestError, "invalid_request_error", 409),
    (AuthenticationError, "authentication_error", 401),
    (PermissionDeniedError, "permission_error", 403),
    (RequestNotFoundError, "not_found_error", 404),
    (ResourceExhaustedError, "rate_limit_error", 429),
    (UnavailableError, "overloaded_error", OVERLOADED),
    (DeadlineExceededError, "timeout_error", 504),
)
"""Type and status of each error; the first that fits counts, and all others are our own fault."""


def reads_anthropic(path: str, headers: Mapping[str, str]) -> bool:
    """Whether this caller of `path` expects this shape."""
    return path == PATHS or path.startswith(PATHS + "/") or VERSION_HEADER in headers


def make_error(error: SignalboxError) -> dict[str, Any]:
    """The body with which Anthropic's API tells an error, as an answer and as an event."""
    return {"type": "error", "error": {"type": _kind_of(error)[0], "message": _message_of(error)}}


def http_status(error: SignalboxError) -> int:
    """The status with which Anthropic's API tells an error."""
    return _kind_of(error)[1]


def _kind_of(error: SignalboxError) -> tuple[str, int]:
    for kind, name, status in _KINDS:
        if isinstance(error, kind):
            return name, status
    return "api_error", status_of(error).http


def _message_of(error: SignalboxError) -> str:
    """With the field in front, as Anthropic's clients have no place for it. Agents shorten their history when they
    read that the prompt is too long."""
    if isinstance(error, ContextLengthError):
        return f"prompt is too long: {error.message}"
    if not error.field or error.message.startswith(error.field):
        return error.message
    return f"{error.field}: {error.message}"
