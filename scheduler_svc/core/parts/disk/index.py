"""What a worker has on disk, and what it is to store there: contents by group, never files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.parts.disk.worth import DiskPace
from scheduler_svc.core.state.blocks.block_pool import Blocks, Hashes

Content = tuple[int, bytes]
"""Number of a group, and a name."""
MOST_WISHES = 1 << 15
"""Contents that wait to be stored; the oldest are given up."""
MOST_ASKED = 1 << 16
MOST_CONTENTS = 1 << 19
"""Contents of a group that are kept in mind; a worker tells less."""


class DiskIndex:
    """The disk tier of one worker, from its first news on, until its link ends."""

    def __init__(self, num_groups: int) -> None:
        self.contents: list[set[bytes]] = [set() for _ in range(num_groups)]
        """Names of what can be loaded, by group."""
        self.pace = DiskPace(block_us=(0.0,) * num_groups)
        self.is_off = False
        """The disk has failed, and is left alone."""
        self._wishes: OrderedDict[Content, None] = OrderedDict()
        """What is to be stored, oldest first."""
        self._asked: OrderedDict[Content, None] = OrderedDict()
        """What has been ordered, and is not known to be there, or not to be."""
        self.stores: dict[int, list[Blocks]] = {}
        """By step: blocks of each group that it ordered to be stored, and that have not been read. They are held."""
        self.drops: list[bytes] = []
        """Names of contents that are wrong, which the worker is to be told."""
        self.drops_all = False

    @property
    def has_orders(self) -> bool:
        """A step might have something for the disk."""
        return bool(self.drops or self.drops_all or (self._wishes and self.may_store))

    @property
    def has_wishes(self) -> bool:
        """Contents wait to be stored, now or when the disk can be used again."""
        return bool(self._wishes)

    @property
    def may_store(self) -> bool:
        """What was ordered before has been read."""
        return not self.stores and not self.is_off

    def has(self, group: int, hashes: Hashes) -> NDArray[np.bool_]:
        """Which of these contents can be loaded."""
        known = self.contents[group]
        return np.array([name in known for name in hashes.tolist()], np.bool_)

    # -- news --

    def begin(self) -> None:
        """All that was said of contents is forgotten."""
        for known in self.contents:
            known.clear()
        self._asked.clear()

    def add(self, group: int, names: Iterable[bytes]) -> None:
        """Contents that can be loaded from now on."""
        known = self.contents[group]
        for name in names:
            self._asked.pop((group, name), None)
            if len(known) < MOST_CONTENTS:
                known.add(name)

    def remove(self, group: int, names: Iterable[bytes]) -> None:
        """Contents that cannot be loaded, or were not stored."""
        known = self.contents[group]
        for name in names:
            self._asked.pop((group, name), None)
            known.discard(name)

    # -- wishes --

    def wish(self, group: int, hashes: Hashes) -> None:
        """Contents that are to be stored, if they are not there."""
        known = self.contents[group]
        for name in hashes.tolist():
            if name not in known and (group, name) not in self._asked:
                self._wishes[group, name] = None
        while len(self._wishes) > MOST_WISHES:
            self._wishes.popitem(last=False)

    def take_wishes(self, most: int) -> list[Content]:
        """The next contents to be stored, which are asked for from now on."""
        taken: list[Content] = []
        while self._wishes and len(taken) < most:
            content, _ = self._wishes.popitem(last=False)
            if content[1] not in self.contents[content[0]]:
                taken.append(content)
                self._asked[content] = None
        while len(self._asked) > MOST_ASKED:
            self._asked.popitem(last=False)
        return taken

    def not_asked(self, content: Content) -> None:
        """It was not ordered after all: its blocks are gone."""
        self._asked.pop(content, None)

    # -- what is wrong --

    def drop(self, names: Sequence[bytes]) -> None:
        """Contents that are wrong in all groups, wherever they are, or on their way."""
        for group in range(len(self.contents)):
            self.remove(group, names)
            for name in names:
                self._wishes.pop((group, name), None)
        self.drops += names

    def clear(self) -> None:
        """Nothing that is there may be loaded any more."""
        self.begin()
        self._wishes.clear()
        self.drops, self.drops_all = [], True

    def take_drops(self) -> tuple[list[bytes], bool]:
        """What the worker is to forget; it is told now."""
        drops, self.drops = self.drops, []
        drops_all, self.drops_all = self.drops_all, False
        return drops, drops_all

    def pinned(self, group: int) -> list[Blocks]:
        """Blocks of a group that are held because they are being read, as block tables."""
        return [blocks[group] for blocks in self.stores.values()]
