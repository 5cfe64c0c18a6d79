"""A few lines of HTTP for the command line, so that the base package needs no HTTP library."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from signalbox.api_keys import key_from_environment
from signalbox.errors import (
    STATUS,
    InternalError,
    InvalidRequestError,
    SignalboxError,
    UnavailableError,
)

CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 600
"""Most seconds between two events of a stream; a long prompt is silent until its first token."""


class HttpClient:
    """Speaks JSON and server-sent events with one server."""

    def __init__(self, url: str, *, api_key: str | None = None) -> None:
        """`url` is e.g. http://127.0.0.1:8000; a path in it goes ahead of every other. `api_key` None: the one in
        SIGNALBOX_API_KEY; empty: none is sent."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequestError(f"{url} is not a URL such as http://127.0.0.1:8000", field="url")
        self._url, self._parts = url, parts
        key = key_from_environment() if api_key is None else api_key
        self._headers = {"content-type": "application/json"}
        if key:
            self._headers["authorization"] = f"Bearer {key}"

    def get(self, path: str) -> Any:
        """The JSON document at `path`."""
        with closing(self._connect()) as connection:
            return json.loads(self._ask(connection, "GET", path, None).read())

    def post_stream(self, path: str, body: dict[str, Any]) -> Generator[Any, None, None]:
        """The events of a stream, up to `[DONE]`. Closing the iterator cancels the request."""
        with closing(self._connect()) as connection:
            response = self._ask(connection, "POST", path, json.dumps(body))
            try:
                yield from _events(response)
            except (OSError, HTTPException) as error:
                raise UnavailableError(f"the connection to {self._url} broke: {error!r}") from None

    def _connect(self) -> HTTPConnection:
        make = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        return make(self._parts.hostname or "", self._parts.port, timeout=CONNECT_TIMEOUT_S)

    def _ask(self, connection: HTTPConnection, method: str, path: str, body: str | None) -> HTTPResponse:
        try:
            connection.connect()
        except OSError:
            raise UnavailableError(f"nothing answers at {self._url}; start it with `signalbox up`") from None
        connection.sock.settimeout(READ_TIMEOUT_S)
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, body, self._headers)
            response = connection.getresponse()
        except (OSError, HTTPException) as error:
            raise UnavailableError(f"{self._url} does not answer as an HTTP server: {error!r}") from None
        if response.status != HTTPStatus.OK:
            raise _error_of(response)
        return response


def _events(response: HTTPResponse) -> Iterator[Any]:
    for line in response:
        if not line.startswith(b"data:"):
            continue
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise InternalError(str(event["error"].get("message", event["error"])))
        yield event


def _error_of(response: HTTPResponse) -> SignalboxError:
    """The error that OpenAI's error body describes."""
    body = response.read().decode(errors="replace")
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = f"HTTP {response.status}: {body[:200]}"
    return _BY_STATUS.get(response.status, InternalError)(message)


_BY_STATUS: dict[int, type[SignalboxError]] = {}
"""The most general class of each HTTP status."""
for _error, _status in STATUS.items():
    if _error is not SignalboxError:
        _BY_STATUS.setdefault(_status.http, _error)
