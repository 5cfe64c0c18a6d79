"""What a worker says of itself when it attaches, in as many parts as it comes in (docs/liveness.md, W3)."""

from __future__ import annotations

from scheduler_svc import delta
from scheduler_svc.core.recovery import check_slots
from signalbox.v1 import scheduler_pb2


class Greeting:
    """A hello and the parts of its snapshot so far. Each part is read and checked as it comes, so that none of them
    takes long. Raises ValueError or DecodeError for what contradicts itself."""

    def __init__(self, hello: scheduler_pb2.WorkerHello, wall_ms: int = delta.LATEST_MS) -> None:
        """`wall_ms`: our own clock, Unix time in milliseconds."""
        self.hello, self._wall_ms = hello, wall_ms
        self.info, self.snapshot = delta.parse_hello(hello, wall_ms)
        self._num_missing = hello.snapshot.num_parts
        self._seen: set[int] = set()
        """Slots that were named."""
        if self.snapshot is not None:
            check_slots(self.info, self.snapshot.slots, self._seen)
            self.snapshot.num_checked = len(self.snapshot.slots)

    @property
    def is_whole(self) -> bool:
        """Nothing of it is missing."""
        return not self._num_missing

    def add(self, part: scheduler_pb2.SnapshotPart) -> None:
        """Takes the next part."""
        if self.snapshot is None or not self._num_missing:
            raise ValueError("a part of a snapshot comes behind the hello that has announced it")
        slots = delta.parse_slots(part.slots, self._wall_ms)
        check_slots(self.info, slots, self._seen)
        self.snapshot.slots += slots
        self.snapshot.num_checked = len(self.snapshot.slots)
        self._num_missing -= 1
