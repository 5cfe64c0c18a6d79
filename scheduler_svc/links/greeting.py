"""What a worker says of itself when it attaches, in as many parts as it comes in (docs/liveness.md, W3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf.message import DecodeError

from scheduler_svc.core.cluster.offer import OfferError, check_offer
from scheduler_svc.core.recovery.snapshot import SnapshotError, check_slots, pieces_of
from scheduler_svc.links.codec import delta
from signalbox.protocol.columns import BLOCK_ID_BYTES
from signalbox.v1 import from_worker_pb2


class Greeting:
    """A hello and the parts of its snapshot so far, never more of them than its own figures allow (W1). Raises
    ValueError or DecodeError for what contradicts itself."""

    def __init__(
        self,
        hello: from_worker_pb2.WorkerHello,
        wall_ms: int,
        max_bytes: int,
    ) -> None:
        """`wall_ms`: our own clock, Unix time in milliseconds. `max_bytes`: of all parts together."""
        self.hello, self._wall_ms = hello, wall_ms
        self.info = delta.parse_offer(hello)
        check_offer(self.info)
        self.num_missing = hello.snapshot.num_parts
        """Parts that are still to come."""
        self._max_bytes = self._room = max_bytes
        self._unread: list[from_worker_pb2.SlotSnapshot] = []
        self._keep(hello.snapshot.slots, hello.ByteSize())
        self.snapshot = delta.parse_snapshot(hello.snapshot) if hello.HasField("snapshot") else None
        self.is_small = True
        """Whether the hello is taken in in one piece; true until it has been read."""

    @property
    def is_whole(self) -> bool:
        """Nothing of it is missing."""
        return not self.num_missing

    def add(self, part: from_worker_pb2.SnapshotPart) -> None:
        """Takes the next part of the hello."""
        if self.snapshot is None or not self.num_missing:
            raise SnapshotError("a part of a snapshot comes behind the hello that has announced it")
        self.num_missing -= 1
        self._keep(part.slots, part.ByteSize())

    def _keep(self, slots: Sequence[from_worker_pb2.SlotSnapshot], num_bytes: int) -> None:
        """Every part that is still to come has a slot of its own."""
        self._room -= num_bytes
        if self._room < 0:
            raise OfferError(
                "hello", f"has more than {self._max_bytes} bytes with its parts (max_hello_bytes)"
            )
        count = len(self._unread) + len(slots) + self.num_missing
        if count > self.info.num_slots:
            raise SnapshotError(
                f"slots of a snapshot and parts that are announced are {count}, of {self.info.num_slots} slots"
            )
        self._unread += slots

    def read(self) -> Iterator[None]:
        """Reads and checks all slots, so that adopting them cannot fail half way. A yield stands between two pieces."""
        if self.snapshot is None:
            return
        seen: set[int] = set()
        pieces = pieces_of(self._unread, lambda slot: len(slot.block_ids) // BLOCK_ID_BYTES)
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
