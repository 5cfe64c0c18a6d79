"""What all orders of parts can be asked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from signalbox.protocol.parts.blocks import GroupBlock
from signalbox.protocol.parts.import_start import ImportStart


class Orders:
    """What a step orders of one part. The answers here are those of orders that name no slot and no block."""

    part: ClassVar[str]
    """Name of the part."""

    def targets(self, group: int) -> list[int]:
        """Blocks of a group that are written beside the steps."""
        return []

    @property
    def written(self) -> Collection[GroupBlock]:
        """Blocks of all groups that are written beside the steps."""
        return ()

    @property
    def touched(self) -> Collection[GroupBlock]:
        """Blocks of all groups that are read or written beside the steps: orders of no other part write them (PT9)."""
        return ()

    @property
    def tables(self) -> Sequence[ImportStart]:
        """Block tables that slots get ahead of the grants."""
        return ()

    @property
    def going_on(self) -> Collection[int]:
        """Slots that go on with this step, ahead of its starts, and could not before."""
        return ()

    @property
    def slots(self) -> Sequence[int]:
        """Slots that are named."""
        return ()
