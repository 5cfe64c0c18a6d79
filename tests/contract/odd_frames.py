"""Bytes that are nearly HTTP/2 with gRPC in it (RFC 9113): frames of broken or hostile clients, made by hand."""

from __future__ import annotations

import random

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PROMISE, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS = 1, 4
NUMBERS = (0, 1, 2, 3, 5, 16_383, 16_384, 65_535, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
REQUEST = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/signalbox.v1.GenerationService/ListModels"),
    (b":authority", b"localhost"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
)
ODD_HEADERS = (
    (b":method", b"GET"),
    (b":path", b"/"),
    (b":path", b"/signalbox.v1.GenerationService/" + b"x" * 5000),
    (b":status", b"200"),
    (b"content-type", b"text/plain"),
    (b"grpc-timeout", b"99999999H"),
    (b"grpc-timeout", b"1q"),
    (b"grpc-encoding", b"gzip"),
    (b"grpc-encoding", b"none-such"),
    (b"UPPER", b"case"),
    (b"x", b"\x00\r\n"),
    (b"authorization", b"\xff"),
    (b"connection", b"close"),
    (b"x", b"a" * 20_000),
)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def field(name: bytes, value: bytes) -> bytes:
    """A header field as a literal that nobody has to remember (RFC 7541, 6.2.2)."""
    return b"\x00" + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    if len(text) < 127:
        return bytes((len(text),)) + text
    rest, coded = len(text) - 127, b"\x7f"
    while rest >= 128:
        coded += bytes((rest % 128 + 128,))
        rest //= 128
    return coded + bytes((rest,)) + text


class OddFrames:
    """A source of them, of one seed."""

    def __init__(self, seed: object) -> None:
        self.rng = random.Random(str(seed))

    def make(self) -> list[bytes]:
        """All that one connection says, in pieces."""
        if self.rng.random() < 0.15:
            return [self.rng.randbytes(self.rng.randrange(1, 400))]
        if self.rng.random() < 0.1:
            return [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"]
        said = [PREFACE + frame(SETTINGS, 0, 0)]
        return said + [self._frames() for _ in range(self.rng.randrange(1, 20))]

    def _frames(self) -> bytes:
        stream = self.rng.choice((1, 3, 5, 7, 0, 2, 2**31 - 1))
        match self.rng.randrange(8):
            case 0 | 1:
                return self._call(stream)
            case 2:
                return frame(PING, 0, 0, bytes(8)) * self.rng.choice((1, 50))
            case 3:
                return (self._call(stream) + frame(RESET, 0, stream, bytes(4))) * self.rng.choice((1, 20))
            case 4:
                settings = b"".join(
                    self.rng.randrange(9).to_bytes(2, "big") + self.rng.choice(NUMBERS).to_bytes(4, "big")
                    for _ in range(self.rng.choice((1, 3, 200)))
                )
                return frame(SETTINGS, 0, 0, settings)
            case 5:
                more = self.rng.choice(NUMBERS).to_bytes(4, "big")
                return frame(WINDOW, 0, stream, more)
            case 6:
                return self._endless_head(stream)
            case _:
                kind, flags = self.rng.randrange(13), self.rng.randrange(256)
                return frame(kind, flags, stream, self.rng.randbytes(self.rng.choice((0, 1, 4, 8, 300))))

    def _call(self, stream: int) -> bytes:
        """Nearly a call of ListModels, whose message is empty."""
        fields = list(REQUEST)
        for _ in range(self.rng.choice((0, 0, 1, 2))):
            fields.insert(self.rng.randrange(len(fields) + 1), self.rng.choice(ODD_HEADERS))
        if self.rng.random() < 0.1:
            fields.pop(self.rng.randrange(len(fields)))
        block = b"".join(field(*each) for each in fields)
        if self.rng.random() < 0.1:
            block = self.rng.randbytes(len(block) // 2)
        length = self.rng.choice((0, 0, 0, 1, 2**31, 2**32 - 1))
        message = bytes((self.rng.choice((0, 0, 0, 1, 255)),)) + length.to_bytes(4, "big")
        return frame(HEADERS, END_HEADERS, stream, block[:16_384]) + frame(DATA, END_STREAM, stream, message)

    def _endless_head(self, stream: int) -> bytes:
        """Headers that go on in frame after frame and never end (CVE-2024-27316 and its like)."""
        parts = [frame(HEADERS, 0, stream, b"".join(field(*each) for each in REQUEST))]
        more = b"".join(field(b"x-%d" % number, b"a" * 100) for number in range(100))
        parts += [frame(CONTINUATION, 0, stream, more)] * self.rng.choice((1, 10, 100))
        return b"".join(parts)
