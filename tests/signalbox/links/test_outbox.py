"""What waits to be written is bounded, in items and in bytes (W1)."""

from __future__ import annotations

import pytest

from signalbox.links.outbox import Outbox, OutboxFullError


async def test_bytes_are_bounded_and_one_item_may_come_on_top() -> None:
    """However large it is: it fitted into a message, so it fits here."""
    outbox = Outbox[bytes](100, max_bytes=10, size_of=len)
    outbox.put(bytes(10))
    outbox.put(bytes(50))
    with pytest.raises(OutboxFullError, match="60 bytes"):
        outbox.put(b"")
    assert [len(item) for item in await outbox.take()] == [10, 50]
    outbox.put(bytes(11))
    with pytest.raises(OutboxFullError):
        outbox.put(bytes(1))


async def test_items_are_bounded_without_any_size() -> None:
    outbox = Outbox[bytes](2)
    outbox.put(bytes(1 << 20))
    outbox.put(bytes(1 << 20))
    with pytest.raises(OutboxFullError, match="2 messages"):
        outbox.put(b"")
    assert len(await outbox.take()) == 2 and not len(outbox)
