"""Messages to one frontend that it has not acknowledged yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator


class OutboundLog:
    """Numbered messages, oldest first, bounded in bytes. It outlives streams and the requests it speaks of."""

    def __init__(self, max_bytes: int) -> None:
        self._messages: deque[tuple[int, bytes]] = deque()
        self._num_bytes = 0
        self._max_bytes = max_bytes
        self.next_sequence = 1

    @property
    def is_full(self) -> bool:
        """More is waiting than a live frontend would leave unread."""
        return self._num_bytes > self._max_bytes

    @property
    def is_empty(self) -> bool:
        """Whether everything has been acknowledged."""
        return not self._messages

    @property
    def num_bytes(self) -> int:
        """Size of the messages that are kept."""
        return self._num_bytes

    def __len__(self) -> int:
        return len(self._messages)

    def append(self, message: bytes) -> None:
        """Adds the message that was made with `next_sequence`."""
        self._messages.append((self.next_sequence, message))
        self._num_bytes += len(message)
        self.next_sequence += 1

    def acknowledge(self, sequence: int) -> None:
        """Forgets messages up to and including `sequence`."""
        while self._messages and self._messages[0][0] <= sequence:
            self._num_bytes -= len(self._messages.popleft()[1])

    def after(self, sequence: int) -> Iterator[tuple[int, bytes]]:
        """Messages later than `sequence`, oldest first."""
        return ((number, message) for number, message in self._messages if number > sequence)
