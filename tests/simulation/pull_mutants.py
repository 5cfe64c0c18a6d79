"""Bugs planted on purpose in pulls of cached blocks (docs/design.md, PB): rings in which conversations come back at
other workers have to find each of them."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_svc.core.parts.pulls import desk
from scheduler_svc.core.parts.pulls.desk import PullDesk
from scheduler_svc.core.parts.pulls.part import must_pull
from worker_svc.core.step import StepDelta
from worker_svc.steps.pull_coordinator import PullCoordinator
from worker_svc.transfer.control.pull_target import PullTarget

Patch = pytest.MonkeyPatch


def source_gives_shown_blocks_away(patch: Patch) -> None:
    """PB3: the blocks that are read are held by nobody."""
    begin = PullDesk.begin

    def begin_without_hold(self: PullDesk, *args: Any) -> None:
        begin(self, *args)
        pull = list(self._open.values())[-1]
        for pool, blocks in zip(pull.source.pools, pull.shown, strict=True):
            pool.release(blocks)
        must_pull(pull.source).shown[pull.number] = [blocks[:0] for blocks in pull.shown]

    patch.setattr(PullDesk, "begin", begin_without_hold)


def shown_blocks_are_held_for_ever(patch: Patch) -> None:
    """PB3: when the pull has ended nobody lets go of them."""
    patch.setattr(desk, "_let_go", lambda source, number: None)


def failed_pulls_are_published(patch: Patch) -> None:
    """PB5: what did not come can be found by its name."""
    end = desk.end_fence
    patch.setattr(desk, "end_fence", lambda worker, fence_id, failed: end(worker, fence_id, failed=False))


def blocks_are_read_on_when_the_link_has_ended(patch: Patch) -> None:
    """PB5: a source whose scheduler is gone lets others read what it may give away."""
    patch.setattr(PullCoordinator, "_end_export", lambda *_: None)


def blocks_are_written_on_when_the_link_has_ended(patch: Patch) -> None:
    """PB5: a target whose scheduler is gone goes on to write what is somebody else's then."""

    def rest(self: PullCoordinator) -> None:
        for number in list(self._exports):
            self._end_export(number)
        self._pulls.clear()

    patch.setattr(PullCoordinator, "rest", rest)


def blocks_are_written_before_their_step_ran(patch: Patch) -> None:
    """PB2: what the blocks held is saved by the step that orders the pull, which has not run."""
    applied = PullCoordinator.applied

    def begin_at_once(self: PullCoordinator, changes: StepDelta) -> None:
        applied(self, changes)
        self.finished(changes.step_id)

    patch.setattr(PullCoordinator, "applied", begin_at_once)


def blocks_come_in_another_order(patch: Patch) -> None:
    """PB3: the last of the source's goes where the first is to be."""
    write = PullTarget._write

    async def write_reversed(self: Any, begun: Any, message: Any, own: Any, *rest: Any) -> None:
        turned = [each[::-1] for each in own]
        await write(self, begun, message, turned, *rest)

    patch.setattr(PullTarget, "_write", write_reversed)
