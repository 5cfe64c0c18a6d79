"""Everything that can go wrong for a caller, and the one mapping to gRPC status and HTTP codes.

SignalboxError
├── InvalidRequestError        the request itself is wrong; `field` names where
│   ├── UnknownModelError      no such model is served
│   ├── ContextLengthError     prompt and output do not fit the model's context
│   ├── DeadEndError           no token can come next; a finish reason, not an error, where there is output
│   ├── RequestTooLargeError   more bytes or tokens than this server takes
│   └── UnsupportedMediaTypeError  a body that is not said to be JSON
├── AuthenticationError        no key, or an unknown one
├── PermissionDeniedError      a known key that may not do this
├── RequestNotFoundError       no such request
├── DuplicateRequestError      the client's request id is running already
├── DuplicateWorkerError       the worker's id is another process's, which lives
├── UnsupportedError           understood, but this server cannot do it
├── ResourceExhaustedError     a limit is reached; trying later can help
├── UnavailableError           no worker, or the service is starting or stopping
├── DeadlineExceededError      the request's time ran out
├── CancelledError             the client cancelled
├── InternalError              our bug
├── LeaseLostError             another scheduler leads: this process ends
└── StartupError               a service cannot start: bad setting, port in use, unreadable model
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from http import HTTPStatus

import grpc


class SignalboxError(Exception):
    """Base of all errors meant for a caller. `message` is a sentence; `field` names the offending input, if any."""

    retry_after_s: float | None = None
    """Seconds after which trying again makes sense; None: nobody knows."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidRequestError(SignalboxError):
    """The request is wrong and would be wrong again."""


class UnknownModelError(InvalidRequestError):
    """The request names a model that is not served here."""


class ContextLengthError(InvalidRequestError):
    """Prompt and output have more tokens than the model's context. Agents shorten their history when they read it."""


class DeadEndError(InvalidRequestError):
    """No token can come next: the form, with other fields of the request, allows none. A worker says it so; clients
    are told a finish reason (FINISH_REASON_DEAD_END)."""


class RequestTooLargeError(InvalidRequestError):
    """The request has more bytes or tokens than this server takes."""


class UnsupportedMediaTypeError(InvalidRequestError):
    """A body over HTTP that is not said to be JSON."""


class AuthenticationError(SignalboxError):
    """The caller gave no key, or one that is not known."""


class PermissionDeniedError(SignalboxError):
    """The caller is known but may not do this."""


class RequestNotFoundError(SignalboxError):
    """There is no such request."""


class DuplicateRequestError(SignalboxError):
    """The caller's request id belongs to a request that is still running."""


class DuplicateWorkerError(SignalboxError):
    """The worker's id belongs to another process that is still there."""


class UnsupportedError(SignalboxError):
    """The option is understood, but this server cannot do it."""


class ResourceExhaustedError(SignalboxError):
    """A limit is reached; `retry_after_s` says when trying again makes sense, if that is known."""

    def __init__(self, message: str, *, field: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, field=field)
        self.retry_after_s = retry_after_s


def limit_reached(message: str, retry_after_s: float, *, field: str = "") -> ResourceExhaustedError:
    """The error of a limit, which `message` names with its value and what is there now."""
    told = f"{message}; try again in {math.ceil(retry_after_s)} s"
    return ResourceExhaustedError(told, field=field, retry_after_s=retry_after_s)


class UnavailableError(SignalboxError):
    """The service cannot serve now: no worker is attached, it is starting or stopping, or short of memory."""

    def __init__(
        self, message: str, *, field: str = "", retry_after_s: float | None = None, passes: bool = True
    ) -> None:
        """`passes`: it is a matter of time, so that another try may help."""
        super().__init__(message, field=field)
        self.retry_after_s, self.passes = retry_after_s, passes


class DeadlineExceededError(SignalboxError):
    """The request's time ran out."""


class CancelledError(SignalboxError):
    """The request was cancelled, by its client or because the server stops."""


class InternalError(SignalboxError):
    """A bug of ours, or a worker that failed on the request."""


class LeaseLostError(SignalboxError):
    """A scheduler leads no more, and its process ends; printed as one sentence, exit status 1."""


class StartupError(SignalboxError):
    """A service cannot start; printed as one sentence, exit status 1."""


UNAVAILABLE_RETRY_S = 1.0
"""When to try again where nobody knows how long it takes: leaders and workers are replaced within seconds."""


def retry_after_of(error: SignalboxError) -> int | None:
    """Whole seconds after which a client should try again; None: it should not, or nobody knows."""
    seconds = error.retry_after_s
    if seconds is None and isinstance(error, UnavailableError) and error.passes:
        seconds = UNAVAILABLE_RETRY_S
    return None if seconds is None else math.ceil(seconds)


@dataclass(frozen=True)
class Status:
    """How an error looks on the two faces."""

    grpc: grpc.StatusCode
    http: HTTPStatus
    openai_type: str
    """The `type` field of OpenAI's error body."""
    openai_code: str = ""
    """Its `code`, where OpenAI has a word that clients look for; empty: the name of the error's class."""


STATUS: dict[type[SignalboxError], Status] = {
    SignalboxError: Status(grpc.StatusCode.INTERNAL, HTTPStatus.INTERNAL_SERVER_ERROR, "server_error"),
    InvalidRequestError: Status(
        grpc.StatusCode.INVALID_ARGUMENT, HTTPStatus.BAD_REQUEST, "invalid_request_error"
    ),
    UnknownModelError: Status(
        grpc.StatusCode.INVALID_ARGUMENT, HTTPStatus.NOT_FOUND, "invalid_request_error", "model_not_found"
    ),
    ContextLengthError: Status(
        grpc.StatusCode.INVALID_ARGUMENT,
        HTTPStatus.BAD_REQUEST,
        "invalid_request_error",
        "context_length_exceeded",
    ),
    DeadEndError: Status(grpc.StatusCode.INVALID_ARGUMENT, HTTPStatus.BAD_REQUEST, "invalid_request_error"),
    AuthenticationError: Status(
        grpc.StatusCode.UNAUTHENTICATED, HTTPStatus.UNAUTHORIZED, "authentication_error", "invalid_api_key"
    ),
    PermissionDeniedError: Status(
        grpc.StatusCode.PERMISSION_DENIED, HTTPStatus.FORBIDDEN, "permission_error"
    ),
    UnsupportedMediaTypeError: Status(
        grpc.StatusCode.INVALID_ARGUMENT, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "invalid_request_error"
    ),
    RequestNotFoundError: Status(grpc.StatusCode.NOT_FOUND, HTTPStatus.NOT_FOUND, "not_found_error"),
    DuplicateRequestError: Status(
        grpc.StatusCode.ALREADY_EXISTS, HTTPStatus.CONFLICT, "invalid_request_error"
    ),
    DuplicateWorkerError: Status(
        grpc.StatusCode.ALREADY_EXISTS, HTTPStatus.CONFLICT, "invalid_request_error"
    ),
    UnsupportedError: Status(
        grpc.StatusCode.INVALID_ARGUMENT, HTTPStatus.BAD_REQUEST, "invalid_request_error"
    ),
    ResourceExhaustedError: Status(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        HTTPStatus.TOO_MANY_REQUESTS,
        "rate_limit_error",
        "rate_limit_exceeded",
    ),
    RequestTooLargeError: Status(
        grpc.StatusCode.RESOURCE_EXHAUSTED, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "invalid_request_error"
    ),
    UnavailableError: Status(
        grpc.StatusCode.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE, "service_unavailable_error"
    ),
    DeadlineExceededError: Status(
        grpc.StatusCode.DEADLINE_EXCEEDED, HTTPStatus.GATEWAY_TIMEOUT, "timeout_error"
    ),
    CancelledError: Status(grpc.StatusCode.CANCELLED, HTTPStatus.BAD_REQUEST, "cancelled_error"),
    InternalError: Status(grpc.StatusCode.INTERNAL, HTTPStatus.INTERNAL_SERVER_ERROR, "server_error"),
    LeaseLostError: Status(
        grpc.StatusCode.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE, "service_unavailable_error"
    ),
    StartupError: Status(
        grpc.StatusCode.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE, "service_unavailable_error"
    ),
}

_BY_CODE = {error.__name__: error for error in STATUS}


def status_of(error: SignalboxError) -> Status:
    """How `error` looks on the faces."""
    return STATUS[type(error)]


def openai_code_of(error: SignalboxError) -> str:
    """The `code` of OpenAI's error body."""
    return status_of(error).openai_code or code_of(error)


def code_of(error: SignalboxError) -> str:
    """The word that names `error` on a wire (`Error.code`)."""
    return type(error).__name__


def from_code(code: str, message: str, field: str = "") -> SignalboxError:
    """The error that `code_of` named; a code of a newer version becomes InternalError."""
    return _BY_CODE.get(code, InternalError)(message, field=field)
