"""A few lines of HTTP for the command line, so that the base package needs no HTTP library."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import ssl
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from itertools import chain
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from signalbox.api_keys import key_from_environment
from signalbox.errors import (
    STATUS,
    InternalError,
    InvalidRequestError,
    SignalboxError,
    UnavailableError,
)
from signalbox.links.tls.client_files import ClientFiles

CONNECT_TIMEOUT_S = 10
CHUNK_BYTES = 1 << 20
READ_TIMEOUT_S = 600
"""Most seconds between two events of a stream; a long prompt is silent until its first token."""


class HttpClient:
    """Speaks JSON and server-sent events with one server."""

    def __init__(self, url: str, *, api_key: str | None = None, files: ClientFiles | None = None) -> None:
        """`url` is e.g. http://127.0.0.1:8000; a path in it goes ahead of every other. `api_key` None: the one in
        SIGNALBOX_API_KEY; empty: none is sent. `files`: for https; None: those of the variables. Raises
        StartupError."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequestError(f"{url} is not a URL such as http://127.0.0.1:8000", field="url")
        self._url, self._parts = url, parts
        self._files = ClientFiles.chosen() if files is None else files
        key = key_from_environment() if api_key is None else api_key
        self._headers = {"content-type": "application/json"}
        if key:
            self._headers["authorization"] = f"Bearer {key}"

    def get(self, path: str) -> Any:
        """The JSON document at `path`."""
        with closing(self._connect()) as connection:
            return json.loads(self._ask(connection, "GET", path, None).read())

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON document with which a body is answered."""
        with closing(self._connect()) as connection:
            return json.loads(self._ask(connection, "POST", path, json.dumps(body)).read())

    def post_file(self, path: str, fields: Mapping[str, str], file: BinaryIO, filename: str) -> Any:
        """The JSON document with which a form is answered that has these fields and the file, which is read as it is
        sent."""
        boundary = secrets.token_hex(16)
        head, tail = _form_around(fields, filename, boundary)
        size = len(head) + os.fstat(file.fileno()).st_size + len(tail)
        headers = self._headers | {
            "content-type": f"multipart/form-data; boundary={boundary}",
            "content-length": str(size),
        }
        body = chain([head], iter(lambda: file.read(CHUNK_BYTES), b""), [tail])
        with closing(self._connect()) as connection:
            return json.loads(self._ask(connection, "POST", path, body, headers).read())

    def download(self, path: str, target: BinaryIO) -> None:
        """Writes what is at `path` into `target`. Raises UnavailableError when the connection breaks before its end."""
        with closing(self._connect()) as connection:
            response = self._ask(connection, "GET", path, None)
            try:
                shutil.copyfileobj(response, target, CHUNK_BYTES)
                if response.length:  # copyfileobj takes a connection that was closed for the end
                    raise HTTPException(f"{response.length} bytes are missing")
            except (OSError, HTTPException) as error:
                raise UnavailableError(f"the connection to {self._url} broke: {error!r}") from None

    def post_stream(self, path: str, body: dict[str, Any]) -> Generator[Any, None, None]:
        """The events of a stream, up to `[DONE]`. Closing the iterator cancels the request."""
        with closing(self._connect()) as connection:
            response = self._ask(connection, "POST", path, json.dumps(body))
            try:
                yield from _events(response)
            except (OSError, HTTPException) as error:
                raise UnavailableError(f"the connection to {self._url} broke: {error!r}") from None

    def _connect(self) -> HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            return HTTPConnection(host, port, timeout=CONNECT_TIMEOUT_S)
        return HTTPSConnection(host, port, timeout=CONNECT_TIMEOUT_S, context=self._files.context())

    def _ask(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        body: str | Iterable[bytes] | None,
        headers: Mapping[str, str] | None = None,
    ) -> HTTPResponse:
        """`headers` None: those of every call."""
        try:
            connection.connect()
        except ssl.SSLError as error:
            raise UnavailableError(f"{self._url}: TLS did not come about: {error}") from None
        except OSError:
            raise UnavailableError(f"nothing answers at {self._url}; start it with `signalbox up`") from None
        connection.sock.settimeout(READ_TIMEOUT_S)
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, body, headers or self._headers)
            response = connection.getresponse()
        except (OSError, HTTPException) as error:
            asks = self._parts.scheme == "https" and self._files.cert is None
            hint = "; if it asks for a certificate, say --cert and --key" if asks else ""
            raise UnavailableError(
                f"{self._url} does not answer as an HTTP server: {error!r}{hint}"
            ) from None
        if response.status != HTTPStatus.OK:
            raise _error_of(response)
        return response


def _form_around(fields: Mapping[str, str], filename: str, boundary: str) -> tuple[bytes, bytes]:
    """What comes before a file in a form, and behind it."""
    parts = [
        f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}' for name, value in fields.items()
    ]
    quoted = filename.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "").replace("\n", "")
    parts.append(f'Content-Disposition: form-data; name="file"; filename="{quoted}"\r\n\r\n')
    head = "\r\n".join(f"--{boundary}\r\n{part}" for part in parts)
    return head.encode(errors="replace"), f"\r\n--{boundary}--\r\n".encode()


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
