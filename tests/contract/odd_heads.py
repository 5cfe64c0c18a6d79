"""Bytes that are nearly HTTP/1.1: heads and framing of clients that are broken, or mean harm."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

PATHS = (
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/tokenize",
    "/v1/models",
    "/v1/models/demo",
    "/v1/files",
    "/v1/files/file-" + "0" * 24,
    "/v1/files/..%2f..%2fetc%2fpasswd/content",
    "/v1/files?limit=-1&after=x&order=%00",
    "/v1/batches",
    "/v1/batches/batch_x/cancel",
    "/rerank",
    "/health",
    "/ready",
    "/metrics",
    "/openapi.json",
    "/",
    "/nowhere",
)
ODD_TARGETS = (
    "*",
    "//board",
    "/%00",
    "/%ff%fe",
    "/v1/models/" + "%2e%2e/" * 20,
    "http://elsewhere.example/v1/models",
    "elsewhere.example:443",
    "/v1/completions?" + "a=b&" * 500,
    "/v1/completions#part",
    "/\xe9\xff",
    "/a b",
    "",
)
METHODS = ("GET", "POST", "POST", "POST", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE")
ODD_METHODS = ("PRI", "get", "M" * 70, "G\x00T", "", "QUERY", "SUBSCRIBE")
VERSIONS = ("HTTP/1.1",) * 12 + ("HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "HTTP/1.9", "HTTP/11", "http/1.1", "")
TEXTS = (
    b"",
    b" ",
    b"\x00",
    b"\xff\xfe",
    "größe 🚂".encode(),
    b"a\rX-Injected: 1",
    b"a\nX-Injected: 1",
    b"%0d%0aX-Injected: 1",
    b"a" * 300,
    b"a" * 9_000,
    b"\x7f\x1b[31m",
    b",,,;;;==\"'",
    b"-1",
    b"1e999",
    b"nan",
    b"9" * 400,
    b"null",
)
TRACE = b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01"
KNOWN: dict[bytes, tuple[bytes, ...]] = {
    b"Host": (
        b"localhost",
        b"127.0.0.1:1",
        b"evil.example",
        b"[::1",
        b"a" * 300,
        b"localhost, localhost",
        b"@",
    ),
    b"X-Request-Id": (b"one", b"one", b"id\ttab", b"a" * 129, "ö".encode(), b"a\x00b"),
    b"traceparent": (
        TRACE,
        TRACE[:-3],
        TRACE + b"-x",
        b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-00",
        b"ff" + TRACE,
    ),
    b"tracestate": (b"a=b", b"a=b," * 100, b"=", b"a" * 600 + b"=1"),
    b"X-Request-Timeout": (b"5", b"0", b"1e-300", b"inf", b"0x10"),
    b"X-Priority": (b"1", b"1_0", "１".encode(), b"99999999999999999999", b"+1"),
    b"Content-Type": (
        b"application/json",
        b"text/plain",
        b"application/a+json",
        b"multipart/form-data; boundary=",
        b";",
    ),
    b"Accept": (b"*/*", b"application/openmetrics-text;version=9;q=a", b"text/plain;q=1;q=2", b"," * 200),
    b"Accept-Encoding": (b"gzip", b"zstd;q=-1", b"identity;q=0"),
    b"Origin": (b"http://evil.example", b"null", b"http://localhost", b"http://[", b"file://"),
    b"Sec-Fetch-Site": (b"cross-site", b"same-origin"),
    b"Connection": (b"close", b"keep-alive", b"upgrade", b"close, keep-alive", b"Content-Length", b"Host"),
    b"Upgrade": (b"websocket", b"h2c", b"TLS/1.3"),
    b"Expect": (b"100-continue", b"100-Continue, 100-continue", b"200-ok"),
    b"Range": (b"bytes=0-", b"bytes=-1--1"),
    b"Cookie": (b"a=b; " * 200,),
    b"anthropic-version": (b"2023-06-01", b"0"),
    b"Authorization": (
        b"Bearer ",
        b"Basic YTpi",
        b"bearer x",
        b"Bearer sb-a-b",
        b"Bearer \xff",
        b"Bearer a b",
    ),
    b"x-api-key": (b"sb", b"\x00"),
    b"Trailer": (b"Content-Length", b"Authorization"),
    b"Transfer-Encoding": (
        b"identity",
        b"gzip, chunked",
        b"chunked, chunked",
        b"xchunked",
        b"chunked\x00",
        b"\x0bchunked",
    ),
    b"Content-Length": (
        b"0",
        b"-1",
        b"+3",
        b"3, 3",
        b"0x3",
        b"3.0",
        b"9" * 30,
        b"18446744073709551616",
        b" ",
    ),
}
NAMES = (b"X-A", b"x-\xff", b"", b" X", b"X ", b"X\x00Y", b"(", b"X" * 300, b":", b"Content_Length")
ENDS = (b"\r\n",) * 40 + (b"\n", b"\r", b"\r\r\n", b"\r\n ", b"\x00\r\n")


class OddHeads:
    """A source of them, of one seed."""

    def __init__(self, seed: object, keys: Sequence[str]) -> None:
        """keys: API keys that are right."""
        self.rng = random.Random(str(seed))
        self._keys = keys

    def make(self) -> list[bytes]:
        """One to three requests on one connection, in pieces as they are to be sent."""
        data = b"".join(self._request() for _ in range(self.rng.choice((1, 1, 1, 2, 3))))
        if self.rng.random() < 0.1:
            data = self._damage(data)
        cuts = sorted(self.rng.randrange(len(data) + 1) for _ in range(self.rng.choice((0, 0, 1, 4))))
        return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    def _request(self) -> bytes:
        pick, some = self.rng.choice, self.rng.random
        method = pick(METHODS) if some() < 0.95 else pick(ODD_METHODS)
        target = pick(PATHS) if some() < 0.9 else pick(ODD_TARGETS)
        line = f"{method} {target} {pick(VERSIONS)}".encode("latin-1")
        headers = [(name, self._value(name)) for name in self.rng.sample(list(KNOWN), self.rng.randrange(6))]
        headers += [(pick(NAMES), pick(TEXTS)) for _ in range(pick((0, 0, 0, 1, 2, 200)))]
        if some() < 0.9:
            headers.append((b"Host", b"localhost"))
        if some() < 0.8:
            headers.append((b"Authorization", b"Bearer " + pick(self._keys).encode()))
        body, framing = self._body()
        headers += framing
        self.rng.shuffle(headers)
        return (
            self._lines(
                [line, *(name + pick((b": ", b":", b":\t ")) + value for name, value in headers), b""]
            )
            + body
        )

    def _value(self, name: bytes) -> bytes:
        return self.rng.choice(KNOWN[name] if self.rng.random() < 0.8 else TEXTS)

    def _lines(self, lines: Sequence[bytes]) -> bytes:
        """One in forty requests or so has a line that ends otherwise."""
        ends = ENDS if self.rng.random() < 0.2 else ENDS[:1]
        return b"".join(line + self.rng.choice(ends) for line in lines)

    def _body(self) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """A body, and the headers that say where it ends, or do not."""
        asked = {"model": "demo", "prompt": [5, 6], "max_tokens": 3, "stream": self.rng.random() < 0.5}
        body = json.dumps(asked).encode() if self.rng.random() < 0.8 else self.rng.choice(TEXTS)
        kind = (b"Content-Type", b"application/json")
        match self.rng.choice(("length", "length", "length", "chunked", "chunked", "lie", "both", "none")):
            case "length":
                return body, [kind, (b"Content-Length", b"%d" % len(body))]
            case "chunked":
                return self._chunks(body), [kind, (b"Transfer-Encoding", b"chunked")]
            case "lie":
                lied = len(body) + self.rng.choice((-5, -1, 1, 1000, 10**6, 10**12))
                return body, [kind, (b"Content-Length", b"%d" % lied)]
            case "both":
                framing = [(b"Transfer-Encoding", b"chunked"), (b"Content-Length", b"%d" % len(body))]
                return self._chunks(body), [kind, *framing]
            case _:
                return body, [kind]

    def _chunks(self, body: bytes) -> bytes:
        pick, some = self.rng.choice, self.rng.random
        data, step = b"", pick((1, 7, 1000))
        for start in range(0, len(body), step):
            part = body[start : start + step]
            size = (
                b"%x" % len(part)
                if some() < 0.98
                else pick((b"-1", b"0x2", b"f" * 20, b"g", b"", b" 1", b"+1"))
            )
            more = b"" if some() < 0.9 else pick((b";a=b", b";" + b"x" * 5000, b";\n", b" "))
            data += size + more + b"\r\n" + part + (b"\r\n" if some() < 0.98 else pick((b"", b"\n", b"xx")))
        trailers = pick((b"", b"", b"X-A: b\r\n", b"Content-Length: 3\r\n", b"T: a\r\n" * 200))
        return data + pick((b"0\r\n", b"0\r\n", b"0\r\n", b"000\r\n", b"")) + trailers + b"\r\n"

    def _damage(self, data: bytes) -> bytes:
        damaged = bytearray(data)
        for _ in range(self.rng.choice((1, 3, 20))):
            damaged[self.rng.randrange(len(damaged))] = self.rng.randrange(256)
        return bytes(damaged[: self.rng.randrange(len(damaged)) + 1])
