"""What a worker tells of its disk tier."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from scheduler_svc.core.parts.disk.index import DiskIndex


@dataclass(frozen=True)
class GroupNews:
    """What has changed of one group."""

    group: int
    added: list[bytes]
    removed: list[bytes]
    block_us: float
    """To load a block, in microseconds; 0: not measured yet."""


@dataclass(frozen=True)
class DiskNews:
    """What has changed of a disk tier."""

    begins: bool = False
    """What was said before is to be forgotten."""
    groups: list[GroupNews] = field(default_factory=list)
    is_off: bool = False
    base_us: float = 0.0
    token_us: float = 0.0


def take_news(disk: DiskIndex, news: DiskNews) -> None:
    """Takes it into the index; what is said of groups that there are not is left out."""
    if news.begins:
        disk.begin()
    block_us = list(disk.pace.block_us)
    for each in news.groups:
        if each.group < len(block_us):
            disk.add(each.group, each.added)
            disk.remove(each.group, each.removed)
            block_us[each.group] = each.block_us
    disk.is_off = news.is_off
    disk.pace = replace(disk.pace, base_us=news.base_us, block_us=tuple(block_us), token_us=news.token_us)
