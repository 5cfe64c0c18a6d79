"""Clients without a key that send headers which are small on the wire and large when they are read, as a program.

`python -m tests.contract.strangers PORT` floods a gRPC port on this machine, each connection from an address of its own
(127.0.0.2 and so on), for a bounded time. What it costs others is measured by `tests/contract/strangers_bench.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import threading
import time
from dataclasses import dataclass

from tests.contract.odd_frames import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    REQUEST,
    SETTINGS,
    field,
    frame,
)

VALUE_BYTES = 3900
"""Of the one header that goes into HPACK's table, which has 4,096 bytes."""
REPEATED = b"\xbe"
"""That header once more: the youngest entry of the table."""
MAX_FRAME_BYTES = 16_384
QUIET_S = 1.0
"""How long a connection that has sent everything is kept open."""
MAX_SECONDS = 120.0


@dataclass(frozen=True)
class Flood:
    """What each connection sends, again and again until the time is over."""

    names: int
    """Headers of a call beside the usual ones: the first has a name and a value, the others are a byte each."""
    calls: int = 64
    pause_s: float = 0.0
    """Between two calls, or two frames."""
    is_endless: bool = False
    """One call whose headers never end, in CONTINUATION frames."""


def remembered() -> bytes:
    """A header field that the server puts into its table (RFC 7541, 6.2.1)."""
    return b"\x40" + field(b"z", b"a" * VALUE_BYTES)[1:]


def call(stream: int, names: int, *, is_first: bool) -> bytes:
    """The frames of one call with so many headers, and no message."""
    block = b"".join(field(*each) for each in REQUEST) + (remembered() if is_first else b"")
    block += REPEATED * (names - is_first)
    parts = [block[at : at + MAX_FRAME_BYTES] for at in range(0, len(block), MAX_FRAME_BYTES)]
    frames = []
    for index, part in enumerate(parts):
        kind, flags = (CONTINUATION, 0) if index else (HEADERS, END_STREAM)
        frames.append(frame(kind, flags | (END_HEADERS if index == len(parts) - 1 else 0), stream, part))
    return b"".join(frames)


def send(connection: socket.socket, flood: Flood, until_s: float) -> None:
    """One connection's part. Raises OSError when it is ended."""
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
    if flood.is_endless:
        head = b"".join(field(*each) for each in REQUEST)
        connection.sendall(frame(HEADERS, END_STREAM, 1, head))
        part = frame(CONTINUATION, 0, 1, field(b"z", b"a" * 16_000))
        while time.monotonic() < until_s:
            connection.sendall(part)
            time.sleep(flood.pause_s)
        return
    for index in range(flood.calls):
        connection.sendall(call(2 * index + 1, flood.names, is_first=index == 0))
        if time.monotonic() > until_s:
            return
        time.sleep(flood.pause_s)
    time.sleep(QUIET_S)


def swallow(connection: socket.socket) -> None:
    """Reads what is answered, so that the server can go on answering."""
    with contextlib.suppress(OSError):
        while connection.recv(1 << 16):
            pass


def keep_flooding(port: int, host: str, flood: Flood, until_s: float) -> int:
    """One client until then: dials again whenever it is ended. How often it did."""
    count = 0
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError), socket.socket() as connection:
            connection.settimeout(5)
            connection.bind((host, 0))
            connection.connect(("127.0.0.1", port))
            count += 1
            threading.Thread(target=swallow, args=(connection,), daemon=True).start()
            send(connection, flood, until_s)
        time.sleep(0.05)
    return count


def main() -> None:
    """Prints how many connections there were."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("port", type=int)
    parser.add_argument("--names", type=int, default=3000)
    parser.add_argument("--calls", type=int, default=64)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--net", type=int, default=0, help="third number of the addresses, 0 to 255")
    parser.add_argument("--pause-s", type=float, default=0.0)
    parser.add_argument("--endless", action="store_true")
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args()
    flood = Flood(args.names, args.calls, args.pause_s, args.endless)
    until_s = time.monotonic() + min(args.seconds, MAX_SECONDS)
    counts: list[int] = []
    threads = [
        threading.Thread(
            target=lambda host: counts.append(keep_flooding(args.port, host, flood, until_s)),
            args=(f"127.0.{args.net}.{2 + index}",),
        )
        for index in range(min(args.connections, 200))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{sum(counts)} connections", flush=True)


if __name__ == "__main__":
    main()
