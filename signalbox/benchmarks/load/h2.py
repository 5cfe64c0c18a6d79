"""As much of HTTP/2 (RFC 9113) and gRPC's framing as a load bench needs of one connection.

grpc.aio costs its process some 80 µs per message; on a machine that client and server share, that would be measured as
the server's slowness. Here one read of the socket is taken apart at a few µs per message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import count
from urllib.parse import unquote

from signalbox.api_keys import key_from_environment

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK = END_STREAM = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE = 1, 4
MAX_WINDOW = (1 << 31) - 1
DEFAULT_WINDOW = 65_535
MAX_FRAME = 16_384
REFILL_BYTES = 1 << 20
CANCEL = 8

Receive = Callable[[bytes, float], None]
"""Gets a whole message, and when it came (time.perf_counter)."""


class Stream:
    """One call: a message out, messages in."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._partial = b""
        self.window = 0
        """Bytes that the server takes of it now."""
        self.unsent = b""
        self.ended: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        """The trailers, once the stream has ended."""

    def take(self, data: bytes, now: float) -> None:
        """Bytes of the answer; each message has a flag and its length (4 bytes) in front."""
        data = self._partial + data
        at = 0
        while len(data) - at >= 5 and len(data) - at - 5 >= (size := int.from_bytes(data[at + 1 : at + 5])):
            self._receive(data[at + 5 : at + 5 + size], now)
            at += 5 + size
        self._partial = data[at:]

    def end(self, trailers: dict[str, str]) -> None:
        """The server has ended it."""
        if not self.ended.done():
            self.ended.set_result(trailers)

    def fail(self, error: ConnectionError) -> None:
        """The connection broke."""
        if not self.ended.done():
            self.ended.set_exception(error)


class H2Connection(asyncio.Protocol):
    """A connection on which calls run side by side."""

    def __init__(self, authority: str) -> None:
        self._authority = authority
        self._streams: dict[int, Stream] = {}
        self._ids = count(1, 2)
        self._buffer = b""
        self._window = self._stream_window = DEFAULT_WINDOW
        self._received = 0
        self._transport: asyncio.Transport | None = None
        self._is_tls = self.is_open = False

    async def call(self, path: str, message: bytes, receive: Receive, timeout_s: float) -> dict[str, str]:
        """Sends `message` and hands the answers to `receive`; returns the trailers. Raises ConnectionError when the
        connection breaks, TimeoutError after `timeout_s`."""
        if not self.is_open:
            raise ConnectionError("the connection is closed")
        number, stream = next(self._ids), Stream(receive)
        stream.window = self._stream_window
        stream.unsent = b"\0" + len(message).to_bytes(4) + message
        self._streams[number] = stream
        self._send(HEADERS, END_HEADERS, number, self._headers(path))
        self._send_data(number, stream)
        try:
            async with asyncio.timeout(timeout_s):
                return await stream.ended
        except BaseException:
            self._send(RST_STREAM, 0, number, CANCEL.to_bytes(4))
            raise
        finally:
            del self._streams[number]

    @property
    def num_calls(self) -> int:
        """How many are open."""
        return len(self._streams)

    def close(self) -> None:
        """Ends all calls."""
        if self._transport is not None:
            self._transport.close()

    # -- asyncio.Protocol --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asks for no flow control to speak of, and for headers that need no memory."""
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.is_open = transport, True
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        settings = ((HEADER_TABLE_SIZE, 0), (INITIAL_WINDOW_SIZE, MAX_WINDOW))
        transport.write(PREFACE)
        self._send(SETTINGS, 0, 0, b"".join(key.to_bytes(2) + value.to_bytes(4) for key, value in settings))
        self._send(WINDOW_UPDATE, 0, 0, (MAX_WINDOW - DEFAULT_WINDOW).to_bytes(4))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fails what still runs."""
        self.is_open = False
        for stream in self._streams.values():
            stream.fail(ConnectionError(f"the connection to {self._authority} broke"))

    def data_received(self, data: bytes) -> None:
        """Takes the whole frames of what has come so far."""
        now = time.perf_counter()
        data = self._buffer + data
        at = 0
        while len(data) - at >= 9:
            end = at + 9 + int.from_bytes(data[at : at + 3])
            if end > len(data):
                break
            number = int.from_bytes(data[at + 5 : at + 9]) & MAX_WINDOW
            self._take(data[at + 3], data[at + 4], number, data[at + 9 : end], now)
            at = end
        self._buffer = data[at:]

    # -- inside --

    def _take(self, kind: int, flags: int, number: int, payload: bytes, now: float) -> None:
        if kind == DATA:
            self._take_data(flags, number, payload, now)
        elif kind == HEADERS:
            if flags & END_STREAM and (stream := self._streams.get(number)):
                stream.end(read_headers(payload))
        elif kind == WINDOW_UPDATE:
            self._take_window(number, int.from_bytes(payload) & MAX_WINDOW)
        elif kind == SETTINGS and not flags & ACK:
            self._take_settings(payload)
        elif kind == PING and not flags & ACK:
            self._send(PING, ACK, 0, payload)
        elif kind == RST_STREAM:
            if stream := self._streams.get(number):
                stream.end({"grpc-status": "2", "grpc-message": f"reset by the server ({payload.hex()})"})
        elif kind == GOAWAY:
            self.is_open = False

    def _take_data(self, flags: int, number: int, payload: bytes, now: float) -> None:
        self._received += len(payload)
        if self._received >= REFILL_BYTES:
            self._send(WINDOW_UPDATE, 0, 0, self._received.to_bytes(4))
            self._received = 0
        if stream := self._streams.get(number):
            if flags & PADDED:
                payload = payload[1 : len(payload) - payload[0]]
            stream.take(payload, now)

    def _take_window(self, number: int, size: int) -> None:
        if number == 0:
            self._window += size
            for other, waiting in self._streams.items():
                self._send_data(other, waiting)
        elif stream := self._streams.get(number):
            stream.window += size
            self._send_data(number, stream)

    def _take_settings(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            key, value = int.from_bytes(payload[at : at + 2]), int.from_bytes(payload[at + 2 : at + 6])
            if key == INITIAL_WINDOW_SIZE:
                for stream in self._streams.values():
                    stream.window += value - self._stream_window
                self._stream_window = value
        self._send(SETTINGS, ACK, 0, b"")
        for number, stream in self._streams.items():
            self._send_data(number, stream)

    def _send_data(self, number: int, stream: Stream) -> None:
        """As much of the message as the server takes now."""
        while stream.unsent and (size := min(self._window, stream.window, MAX_FRAME, len(stream.unsent))) > 0:
            part, stream.unsent = stream.unsent[:size], stream.unsent[size:]
            self._window -= size
            stream.window -= size
            self._send(DATA, 0 if stream.unsent else END_STREAM, number, part)

    def _send(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            head = len(payload).to_bytes(3) + bytes((kind, flags)) + number.to_bytes(4)
            self._transport.write(head + payload)

    def _headers(self, path: str) -> bytes:
        fields = {
            ":method": "POST",
            ":scheme": "https" if self._is_tls else "http",
            ":path": path,
            ":authority": self._authority,
            "content-type": "application/grpc",
            "te": "trailers",
        }
        if key := key_from_environment():
            fields["authorization"] = f"Bearer {key}"
        return b"".join(b"\0" + _string(name) + _string(value) for name, value in fields.items())


def _string(text: str) -> bytes:
    """A string of HPACK (RFC 7541) without Huffman coding."""
    data = text.encode()
    assert len(data) < 127
    return bytes((len(data),)) + data


def read_headers(block: bytes) -> dict[str, str]:
    """The literal fields of an HPACK block (RFC 7541, section 6) that has no dynamic table. What comes from the static
    table or in Huffman coding is left out: gRPC's own trailers are neither."""
    found: dict[str, str] = {}
    at = 0
    while at < len(block):
        first = block[at]
        if first & 0x80:  # indexed
            _, at = _integer(block, at, 7)
        elif first & 0xE0 == 0x20:  # size of the dynamic table
            _, at = _integer(block, at, 5)
        else:
            index, at = _integer(block, at, 6 if first & 0x40 else 4)
            name, at = ("", at) if index else _text(block, at)
            value, at = _text(block, at)
            if name:
                found[name] = unquote(value)
    return found


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """Value, and where it ends."""
    limit = (1 << bits) - 1
    value = block[at] & limit
    at += 1
    if value == limit:
        shift = 0
        while True:
            byte = block[at]
            value += (byte & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if not byte & 0x80:
                break
    return value, at


def _text(block: bytes, at: int) -> tuple[str, int]:
    is_huffman = bool(block[at] & 0x80)
    size, at = _integer(block, at, 7)
    return "" if is_huffman else block[at : at + size].decode("latin-1"), at + size
