"""JSON over HTTP, a call now and then: each in a thread, over a connection of its own."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]
MAX_ANSWER_BYTES = 1 << 20


class RestError(Exception):
    """There was no answer in time, or none that says what it should; a sentence."""


class Rest:
    """A server at `http://host:port` or `https://host:port`."""

    def __init__(self, url: str, timeout_s: float, ca: Path | None = None) -> None:
        """`ca`: certificates that the server may be vouched for by; None: those of the system. Raises ValueError for
        what is no such address, OSError when `ca` cannot be read."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/"):
            raise ValueError(f"{url!r} is not http://HOST:PORT or https://HOST:PORT")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._host, self._port, self._timeout_s = parts.hostname, parts.port, timeout_s
        # Its own, as slow look-ups of names may fill the threads that all share.
        self._threads = ThreadPoolExecutor(2, "rest")
        self._tls = ssl.create_default_context(cafile=ca) if parts.scheme == "https" else None

    async def call(
        self, method: str, path: str, body: Json | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Json]:
        """Status and answer; an answer that is no JSON object is one with its beginning as `message`. Raises RestError
        when there is none within the time."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._call, method, path, body, dict(headers or {}))

    def _call(self, method: str, path: str, body: Json | None, headers: dict[str, str]) -> tuple[int, Json]:
        connection = self._connect()
        try:
            sent = None if body is None else json.dumps(body).encode()
            connection.request(method, path, sent, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            return response.status, _read(response.read(MAX_ANSWER_BYTES))
        except (OSError, http.client.HTTPException) as error:
            raise RestError(f"{self.url} does not answer: {error or type(error).__name__}") from None
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._tls)


def _read(raw: bytes) -> Json:
    try:
        answer = json.loads(raw)
    except ValueError:
        answer = None
    return answer if isinstance(answer, dict) else {"message": raw[:200].decode(errors="replace").strip()}
