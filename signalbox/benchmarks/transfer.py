"""Measures how blocks get from one worker's cache to another's, between two processes, against what the machine can do.

    python -m signalbox.benchmarks.transfer --layout smollm2-135m qwen3-0.6b --rounds 15 --json

Shared memory is compared with a copy of as many bytes from one contiguous buffer to another, TCP with a bare loop of
`sendall` and `recv_into` over loopback, in turns: what else runs on the machine meets both. What is told are medians.
Shared memory is mapped already in each round, as for all pulls but the first from a worker, or (`first pull`) anew.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from statistics import median

import numpy as np

from signalbox.v1.transfer_offer_pb2 import TransferOffer
from worker_svc.runner.cpu.native.row_copies import copier_here
from worker_svc.transfer.block_memory import BlockMemory, strip_of
from worker_svc.transfer.channels.block_server import BlockServer
from worker_svc.transfer.channels.kept_mappings import KeptMappings
from worker_svc.transfer.channels.reader import BlockReader
from worker_svc.transfer.channels.registrations import new_token
from worker_svc.transfer.channels.shared_target import SharedReader
from worker_svc.transfer.channels.tcp_target import TcpReader
from worker_svc.transfer.shared_memory import SharedMemory, room_for

LAYOUTS = {"smollm2-135m": (30, 3 * 16 * 64), "qwen3-0.6b": (28, 8 * 16 * 128)}
"""Layers, and elements (bfloat16) of a block of 16 positions in each of a layer's two tensors."""
FIRST_PULL = "shared memory, first pull"
CHUNK_BYTES = 1 << 20
"""Bytes of a call of the bare loop."""


@dataclass(frozen=True)
class Line:
    """One line of output: medians over rounds, in 10^9 bytes per second, and the ratio of rounds' times."""

    layout: str
    blocks: str
    """runs: ids that follow one another at both ends; scattered: at neither."""
    channel: str
    mib: float
    gb_s: float
    bare_gb_s: float
    """What the machine does by itself with as many bytes: a copy, or a loop over a socket."""
    share: float
    """Median of bare time over channel's time, of rounds that follow each other."""


def make_memory(layout: str, num_blocks: int) -> BlockMemory:
    """A cache of so many blocks, all of it touched."""
    layers, elements = LAYOUTS[layout]
    size = num_blocks * elements * 2
    shared = SharedMemory(room_for(*([size] * 2 * layers)))
    strips = [shared.take(size).reshape(num_blocks, -1) for _ in range(2 * layers)]
    for number, rows in enumerate(strips):
        rows[:] = number + 1
    return BlockMemory([[strip_of(rows) for rows in strips]], (), 16, shared, copier_of=copier_here())


def serve(pipe: Connection, layout: str, num_blocks: int, num_bytes: int) -> None:
    """The source, in a process of its own: its channels, and a bare socket."""
    server = BlockServer(make_memory(layout, num_blocks), listen="127.0.0.1:0")
    token = new_token()
    server.register(token, lambda group, blocks: True)
    listener = socket.create_server(("127.0.0.1", 0))
    pipe.send((server.offer(token).SerializeToString(), listener.getsockname()))
    content = memoryview(np.ones(num_bytes, np.uint8))  # type: ignore[arg-type]
    connection, _ = listener.accept()
    while connection.recv(1):
        for start in range(0, num_bytes, CHUNK_BYTES):
            connection.sendall(content[start : start + CHUNK_BYTES])
    pipe.recv()
    server.close()


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class Target:
    """The target's side of one layout."""

    def __init__(
        self, options: argparse.Namespace, layout: str, offer: TransferOffer, bare: tuple[str, int]
    ) -> None:
        self._options, self._layout, self._offer = options, layout, offer
        self._memory, self._mappings = make_memory(layout, options.cache_blocks), KeptMappings()
        self.num_bytes = options.blocks * self._memory.bytes_per_block(0)
        self._bare = socket.create_connection(bare)
        self._buffer = np.zeros(self.num_bytes, np.uint8)
        self._other = np.ones(self.num_bytes, np.uint8)

    def lines(self) -> list[Line]:
        """Both ways to lay out blocks by each channel."""
        draw, count, cache = np.random.default_rng(0), self._options.blocks, self._options.cache_blocks
        runs = (np.arange(count), np.arange(count) + cache - count)
        scattered = (draw.permutation(cache)[:count], draw.permutation(cache)[:count])
        return [
            self._line(name, channel, *blocks)
            for name, blocks in (("runs", runs), ("scattered", scattered))
            for channel in ("shared memory", FIRST_PULL, "tcp", "tcp, checksums")
        ]

    def _line(self, name: str, channel: str, sources: np.ndarray, targets: np.ndarray) -> Line:
        is_shared = channel.startswith("shared memory")
        mappings = None if channel == FIRST_PULL else self._mappings
        bare = self._copy if is_shared else self._loop
        ours, theirs = [], []
        kept = None if is_shared else self._open_tcp(checksums=channel != "tcp")
        for number in range(self._options.rounds + 1):
            reader: BlockReader = kept or SharedReader(
                self._memory, self._offer.socket_path, self._offer.token, mappings
            )
            took = seconds(lambda: reader.read(0, sources.tolist(), targets.tolist()))  # noqa: B023
            alone = seconds(bare)
            if number:  # the first one warms up
                ours.append(took)
                theirs.append(alone)
            if is_shared:
                reader.close()
                del reader  # its mapping goes ahead of the next round, or not
        if kept is not None:
            kept.close()
        return Line(
            layout=self._layout,
            blocks=name,
            channel=channel,
            mib=round(self.num_bytes / 2**20, 1),
            gb_s=round(self.num_bytes / median(ours) / 1e9, 2),
            bare_gb_s=round(self.num_bytes / median(theirs) / 1e9, 2),
            share=round(median(alone / took for alone, took in zip(theirs, ours, strict=True)), 2),
        )

    def _open_tcp(self, *, checksums: bool) -> TcpReader:
        host, _, port = self._offer.tcp_address.rpartition(":")
        while True:  # the source may not have seen the end of the last one
            try:
                return TcpReader(self._memory, (host, int(port)), self._offer.token, checksums=checksums)
            except Exception:
                time.sleep(0.05)

    def _copy(self) -> None:
        np.copyto(self._buffer, self._other)

    def _loop(self) -> None:
        self._bare.send(b"x")
        view, start = memoryview(self._buffer), 0  # type: ignore[arg-type]
        while start < self.num_bytes:
            start += self._bare.recv_into(view[start : start + CHUNK_BYTES])


def measure(options: argparse.Namespace, layout: str) -> list[Line]:
    """All lines of one layout."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    layers, elements = LAYOUTS[layout]
    num_bytes = options.blocks * layers * 2 * elements * 2
    source = context.Process(
        target=serve, args=(theirs, layout, options.cache_blocks, num_bytes), daemon=True
    )
    source.start()
    try:
        offer, bare = ours.recv()
        return Target(options, layout, TransferOffer.FromString(offer), bare).lines()
    finally:
        source.kill()
        source.join()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layout", nargs="+", default=list(LAYOUTS), choices=list(LAYOUTS))
    parser.add_argument("--blocks", type=int, default=64, help="blocks of a read")
    parser.add_argument("--cache-blocks", type=int, default=256, help="blocks of each cache")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    for layout in options.layout:
        for line in measure(options, layout):
            values = asdict(line)
            text = json.dumps(values) if options.json else "  ".join(f"{k}={v}" for k, v in values.items())
            print(text, flush=True)


if __name__ == "__main__":
    main()
