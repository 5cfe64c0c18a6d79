"""Errors as HTTP answers, in the shape that callers of the path read: OpenAI's, or Anthropic's."""

from __future__ import annotations

import logging
from http import HTTPStatus

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from frontend_svc.api.anthropic import errors as anthropic
from frontend_svc.api.openai.renderer import make_error
from signalbox.errors import (
    AuthenticationError,
    InternalError,
    InvalidRequestError,
    RequestNotFoundError,
    SignalboxError,
    retry_after_of,
    status_of,
)

log = logging.getLogger(__name__)

JSON = "application/json"


async def answer_error(request: Request, error: Exception) -> Response:
    """Our errors."""
    assert isinstance(error, SignalboxError)
    headers = {}
    if (seconds := retry_after_of(error)) is not None:
        headers["retry-after"] = str(seconds)
    if isinstance(error, AuthenticationError):
        headers["www-authenticate"] = "Bearer"
    if anthropic.reads_anthropic(request.url.path, request.headers):
        body, status = anthropic.make_error(error), anthropic.http_status(error)
    else:
        body, status = make_error(error), status_of(error).http
    return Response(orjson.dumps(body), status, headers, JSON)


async def answer_http_error(request: Request, error: Exception) -> Response:
    """Wrong path, wrong method: HTTP's own status."""
    assert isinstance(error, HTTPException)
    ours: SignalboxError = InvalidRequestError(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND:
        ours = RequestNotFoundError(f"there is no {request.url.path}")
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        ours = InvalidRequestError(f"{request.url.path} does not take {request.method}")
    make = (
        anthropic.make_error if anthropic.reads_anthropic(request.url.path, request.headers) else make_error
    )
    return Response(orjson.dumps(make(ours)), error.status_code, error.headers, JSON)


async def answer_bug(request: Request, error: Exception) -> Response:
    """Anything else: without its inside."""
    log.exception("request failed", exc_info=error)
    return await answer_error(request, InternalError(f"internal error ({type(error).__name__})"))
