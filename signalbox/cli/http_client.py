"""A client of a frontend's HTTP for the command line: JSON, server-sent events and files, on httpx."""

from __future__ import annotations

import json
import ssl
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

import httpx

from signalbox.api_keys import ENVIRONMENT, key_from_environment
from signalbox.errors import (
    STATUS,
    InternalError,
    InvalidRequestError,
    SignalboxError,
    UnavailableError,
)
from signalbox.links.tls.client_files import ClientFiles

CONNECT_TIMEOUT_S = 10
MAX_PORT = 65535
CHUNK_BYTES = 1 << 20
READ_TIMEOUT_S = 600
"""Most seconds between two events of a stream; a long prompt is silent until its first token."""


class HttpClient:
    """Speaks JSON and server-sent events with one server, each time on a connection of its own.

    Variables such as HTTP_PROXY and files such as .netrc have no effect, and redirects are not followed: requests and
    the key go to the server that was named, or nowhere."""

    def __init__(self, url: str, *, api_key: str | None = None, files: ClientFiles | None = None) -> None:
        """`url` is e.g. http://127.0.0.1:8000; a path in it goes ahead of every other. `api_key` None: the one in
        SIGNALBOX_API_KEY; empty: none is sent. `files`: for https; None: those of the variables. Raises
        StartupError and InvalidRequestError."""
        self._url = url
        try:
            parts = httpx.URL(url)
        except httpx.InvalidURL:
            parts = httpx.URL()
        if parts.scheme not in ("http", "https") or not parts.host or (parts.port or 0) > MAX_PORT:
            raise InvalidRequestError(f"{url} is not a URL such as http://127.0.0.1:8000", field="url")
        self._base = str(parts.copy_with(userinfo=b"", query=None, fragment=None)).rstrip("/")
        self._is_tls = parts.scheme == "https"
        self._files = ClientFiles.chosen() if files is None else files
        # Identity: the bytes of a file are counted as they come.
        self._headers = {"accept-encoding": "identity"}
        if key := key_from_environment() if api_key is None else api_key:
            if not (key.isascii() and key.isprintable()):
                raise InvalidRequestError(f"an API key ({ENVIRONMENT}) is printable ASCII")
            self._headers["authorization"] = f"Bearer {key}"

    def get(self, path: str) -> Any:
        """The JSON document at `path`."""
        with self._ask("GET", path) as response:
            return json.loads(response.read())

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON document with which a body is answered."""
        with self._ask("POST", path, json=body) as response:
            return json.loads(response.read())

    def post_file(self, path: str, fields: Mapping[str, str], file: BinaryIO, filename: str) -> Any:
        """The JSON document with which a form is answered that has these fields and the file, which is read as it is
        sent."""
        name = filename.encode(errors="replace").decode()
        with self._ask("POST", path, data=fields, files={"file": (name, file)}) as response:
            return json.loads(response.read())

    def download(self, path: str, target: BinaryIO) -> None:
        """Writes what is at `path` into `target`. Raises UnavailableError when the connection breaks before its end."""
        with self._ask("GET", path) as response:
            for piece in response.iter_bytes(CHUNK_BYTES):
                target.write(piece)

    def post_stream(self, path: str, body: dict[str, Any]) -> Generator[Any, None, None]:
        """The events of a stream, up to `[DONE]`. Closing the iterator cancels the request."""
        with self._ask("POST", path, json=body) as response:
            yield from _events(response)

    @contextmanager
    def _ask(self, method: str, path: str, **content: Any) -> Iterator[httpx.Response]:
        """A response of status 200, of which the headers have come. `content`: as of httpx. Raises SignalboxError, also
        for a connection that breaks within the block."""
        has_begun = False
        verify = self._files.context() if self._is_tls else False
        timeout = httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        try:
            with (
                httpx.Client(verify=verify, timeout=timeout, trust_env=False) as client,
                client.stream(method, self._base + path, headers=self._headers, **content) as response,
            ):
                if response.status_code != httpx.codes.OK:
                    raise _error_of(response)
                has_begun = True
                yield response
        except (httpx.RequestError, httpx.InvalidURL) as error:
            raise self._unavailable(error, has_begun=has_begun) from None

    def _unavailable(self, error: Exception, *, has_begun: bool) -> UnavailableError:
        """The sentence for a connection that did not come about, or broke. has_begun: the response had."""
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if has_begun:
            return UnavailableError(f"the connection to {self._url} broke: {cause!r}")
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            if isinstance(cause, ssl.SSLError):
                return UnavailableError(f"{self._url}: TLS did not come about: {cause}")
            return UnavailableError(f"nothing answers at {self._url}; start it with `signalbox up`")
        asks = self._is_tls and self._files.cert is None
        hint = "; if it asks for a certificate, say --cert and --key" if asks else ""
        return UnavailableError(f"{self._url} does not answer as an HTTP server: {cause!r}{hint}")


def _events(response: httpx.Response) -> Iterator[Any]:
    for line in _lines(response):
        if not line.startswith(b"data:"):
            continue
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise InternalError(str(event["error"].get("message", event["error"])))
        yield event


def _lines(response: httpx.Response) -> Iterator[bytes]:
    """Lines that end with a newline alone: httpx's own also end at U+2028 and others, which JSON may contain."""
    rest = b""
    for piece in response.iter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _error_of(response: httpx.Response) -> SignalboxError:
    """The error that OpenAI's error body describes."""
    body = response.read().decode(errors="replace")
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = f"HTTP {response.status_code}: {body[:200]}"
    return _BY_STATUS.get(response.status_code, InternalError)(message)


_BY_STATUS: dict[int, type[SignalboxError]] = {}
"""The most general class of each HTTP status."""
for _error, _status in STATUS.items():
    if _error is not SignalboxError:
        _BY_STATUS.setdefault(_status.http, _error)
