"""HTTP/1.1 in an event loop, as much of it as reading a stream needs; connections are used again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from signalbox.api_keys import key_from_environment
from signalbox.errors import InvalidRequestError
from signalbox.links.tls.client_files import ClientFiles

LIMIT_BYTES = 1 << 20
"""Most bytes of a line."""


class HttpProtocolError(Exception):
    """The server does not speak HTTP/1.1."""


class StaleConnectionError(EOFError):
    """The server has closed the connection behind an earlier answer: the request has to be sent over another one."""


class HttpConnection:
    """One connection; one request at a time, whose answer is read to its end before the next."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, prefix: str
    ) -> None:
        self._reader, self._writer = reader, writer
        self._host, self._prefix = host, prefix
        key = key_from_environment()
        self._authorization = f"authorization: Bearer {key}\r\n" if key else ""
        self._headers: dict[str, str] = {}
        self._was_used = False
        self.is_reusable = False
        """The last answer has been read to its end and the server keeps the connection."""

    @property
    def is_open(self) -> bool:
        """The server has not closed it, as far as we know."""
        return not self._reader.at_eof()

    async def send(self, method: str, path: str, body: bytes) -> int:
        """Sends a request and returns the status of its answer. Raises StaleConnectionError where there was an answer
        before and none comes to this one."""
        self.is_reusable = False
        head = (
            f"{method} {self._prefix}{path} HTTP/1.1\r\nhost: {self._host}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{self._authorization}\r\n"
        )
        try:
            self._writer.write(head.encode() + body)
            await self._writer.drain()
            line = await self._line()
        except (EOFError, ConnectionError) as error:
            if self._was_used:
                raise StaleConnectionError(str(error)) from None
            raise
        self._was_used = True
        version, _, rest = line.partition(" ")
        status = rest.split(" ", 1)[0]
        if not version.startswith("HTTP/1.") or not status.isdecimal():
            raise HttpProtocolError(f"not an HTTP/1.1 answer: {version[:80]!r}")
        self._headers = {}
        while line := await self._line():
            name, _, value = line.partition(":")
            self._headers[name.strip().lower()] = value.strip()
        return int(status)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises EOFError when it breaks off."""
        if self._headers.get("transfer-encoding", "").lower() == "chunked":
            while size := self._size(await self._line()):
                data = await self._reader.readexactly(size + 2)
                yield data[:-2]
            while await self._line():
                pass
        elif "content-length" in self._headers:
            yield await self._reader.readexactly(int(self._headers["content-length"]))
        else:
            while data := await self._reader.read(1 << 16):
                yield data
            return
        self.is_reusable = self._headers.get("connection", "").lower() != "close"

    def close(self) -> None:
        """Ends the request that runs, if one does."""
        self._writer.close()

    async def _line(self) -> str:
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the server closed the connection")
        return line.decode("latin-1").rstrip("\r\n")

    @staticmethod
    def _size(line: str) -> int:
        try:
            return int(line.partition(";")[0], 16)
        except ValueError:
            raise HttpProtocolError(f"not the size of a chunk: {line[:80]!r}") from None


class HttpPool:
    """Connections to one server."""

    def __init__(self, url: str, files: ClientFiles | None = None) -> None:
        """`url` is e.g. http://127.0.0.1:8000; a path in it goes ahead of every other. `files`: what is believed and
        shown over https; None: those of the variables. Raises StartupError."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequestError(f"{url} is not a URL such as http://127.0.0.1:8000", field="address")
        self._host, self._name = parts.hostname, parts.netloc
        chosen = ClientFiles.chosen() if files is None else files
        self._ssl = chosen.context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._ssl else 80)
        self._prefix = parts.path.rstrip("/").removesuffix("/v1")
        self._idle: list[HttpConnection] = []

    @asynccontextmanager
    async def connection(self, *, is_new: bool = False) -> AsyncIterator[HttpConnection]:
        """A connection for one request, in any case a new one if so asked; closed afterwards if the answer was not
        read to its end."""
        connection = (None if is_new else self._take_idle()) or await self._open()
        try:
            yield connection
        finally:
            if connection.is_reusable:
                self._idle.append(connection)
            else:
                connection.close()

    def close(self) -> None:
        """Closes the connections that nobody uses."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _take_idle(self) -> HttpConnection | None:
        """One that the server has not closed meanwhile."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
            connection.close()
        return None

    async def _open(self) -> HttpConnection:
        reader, writer = await asyncio.open_connection(
            self._host, self._port, ssl=self._ssl, limit=LIMIT_BYTES
        )
        return HttpConnection(reader, writer, self._name, self._prefix)
