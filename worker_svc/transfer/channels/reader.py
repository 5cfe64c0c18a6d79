"""What a target reads blocks by, whatever the channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class BlockReader(Protocol):
    """An open channel of one pull. One thread at a time reads."""

    channel: str
    """Its name: "shared memory" or "tcp"."""

    def read(self, group: int, source_blocks: Sequence[int], target_blocks: Sequence[int]) -> None:
        """Returns when what `source_blocks` of a group hold is in `target_blocks`, one by one. TransferError: they hold
        garbage, and the channel is closed."""

    def close(self) -> None:
        """Ends the channel; a `read` that is under way in another thread fails. Closed twice is once."""
