"""What a worker says of itself when it attaches, in as many parts as it comes in (docs/liveness.md, W3)."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from scheduler_svc import delta
from scheduler_svc.core.recovery import SnapshotError, check_slots, pieces_of
from signalbox.v1 import scheduler_pb2


class Greeting:
    """A hello and the parts of its snapshot so far. Raises ValueError or DecodeError for what contradicts itself."""

    def __init__(self, hello: scheduler_pb2.WorkerHello, wall_ms: int = delta.LATEST_MS) -> None:
        """`wall_ms`: our own clock, Unix time in milliseconds."""
        self.hello, self._wall_ms = hello, wall_ms
        self.info = delta.parse_offer(hello)
        self.snapshot = delta.parse_snapshot(hello.snapshot) if hello.HasField("snapshot") else None
        self._num_missing = hello.snapshot.num_parts
        self._unread = list(hello.snapshot.slots)
        self.is_small = True
        """It is done in one piece. Not known before it is read."""

    @property
    def is_whole(self) -> bool:
        """Nothing of it is missing."""
        return not self._num_missing

    def add(self, part: scheduler_pb2.SnapshotPart) -> None:
        """Takes the next part."""
        if self.snapshot is None or not self._num_missing:
            raise SnapshotError("a part of a snapshot comes behind the hello that has announced it")
        self._unread += part.slots
        self._num_missing -= 1

    def read(self) -> Iterator[None]:
        """Reads and checks all slots, so that adopting them cannot fail half way. A yield stands between two pieces."""
        if self.snapshot is None:
            return
        seen: set[int] = set()
        pieces = pieces_of(self._unread, lambda slot: len(slot.block_ids) // delta.U32.itemsize)
        self._unread, self.is_small = [], len(pieces) <= 1
        for number, piece in enumerate(pieces):
            if number:
                yield
            try:
                slots = delta.parse_slots(piece, self._wall_ms)
            except (ValueError, DecodeError) as error:
                raise SnapshotError(f"a slot cannot be read: {error}") from None
            check_slots(self.info, slots, seen)
            self.snapshot.slots += slots
            self.snapshot.num_checked = len(self.snapshot.slots)
