"""Deadlines and watchers that are taken out on purpose: rings in which a path goes silent (`ring/silence.py`) have to
find each of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from frontend_svc.links import worker_link, worker_links
from frontend_svc.links.worker_process import Holders, WorkerProcess, find_holders
from frontend_svc.requests.sessions.session import Session
from scheduler_svc.core.cluster.frontends import Frontends
from scheduler_svc.core.liveness.judgement import Liveness
from scheduler_svc.core.liveness.settlement import Settlement
from scheduler_svc.core.parts.handoff.patience import Patience
from scheduler_svc.core.state.requests.evidence import Evidence
from signalbox.links.heartbeat import Silence
from worker_svc.links import scheduler_link
from worker_svc.links.scheduler_link import SchedulerLink
from worker_svc.steps.handoff_coordinator import HandoffCoordinator
from worker_svc.transfer.control.beats import FIRST_S, Hearing
from worker_svc.transfer.control.source import TransferSource

Patch = pytest.MonkeyPatch


def frozen_for_ever(patch: Patch) -> None:
    """HO18: a hand-off takes as long as it takes."""
    patch.setattr(Patience, "is_late", lambda *given: False)


def silent_peers_are_waited_for(patch: Patch) -> None:
    """HO19: nobody looks whether the other worker is there."""
    patch.setattr(Hearing, "check", lambda hearing: None)


def frozen_unheard(patch: Patch) -> None:
    """HO20: a request is frozen before its frontend has heard who is to have it."""
    patch.setattr(Frontends, "number_word", lambda *given: 0)


def moved_unheard(patch: Patch) -> None:
    """HO20: requests are handed over whether their frontends hear the scheduler or not."""
    patch.setattr(Frontends, "hears_us", lambda *given: True)
    patch.setattr(Frontends, "number_word", lambda *given: 0)


def frozen_rows_wait_alone(patch: Patch) -> None:
    """A8: a worker without a scheduler leaves alone what it has frozen."""
    patch.setattr(HandoffCoordinator, "recall", lambda coordinator: None)


def drains_are_not_confirmed(patch: Patch) -> None:
    """HO14: a worker that was told to stop counts at once what it has."""

    async def go_on(link: SchedulerLink, timeout_s: float) -> None:
        return None

    patch.setattr(SchedulerLink, "wait_draining", go_on)


def tails_are_not_remembered(patch: Patch) -> None:
    """A8: a worker without a scheduler goes on with what it has frozen, whoever may have it."""
    take = TransferSource.take

    def forget_and_take(source: TransferSource, news: Any) -> None:
        for feed in source._feeds.values():
            feed.has_tail = False
        take(source, news)

    patch.setattr(TransferSource, "take", forget_and_take)


def unheard_workers_are_not_told(patch: Patch) -> None:
    """H4: a worker that is not heard, and hears, waits for steps."""
    patch.setattr(Liveness, "hears_nothing_of", lambda *given: False)


def doubt_stays(patch: Patch) -> None:
    """HO7: what a worker may not have heard to be its own waits for it."""
    patch.setattr(Liveness, "_leave_in_doubt", lambda *given: None)


def strangers_are_not_believed(patch: Patch) -> None:
    """J13: evidence about a process that this scheduler has never met is dropped."""
    patch.setattr(Settlement, "has_gone", lambda *given: False)


def requests_wait_for_all(patch: Patch) -> None:
    """J13: each request waits for every process that any request may be at."""

    def find_all(processes: Iterable[WorkerProcess], sessions: Iterable[Session]) -> Holders:
        found = find_holders(processes, sessions)
        return Holders(found.workers, [list(range(len(found.workers))) for _ in found.places])

    patch.setattr(worker_links, "find_holders", find_all)


def refusals_are_not_believed(patch: Patch) -> None:
    """J13: a process whose address refuses its frontend is waited for until its time has passed."""
    patch.setattr(Evidence, "refused_at", lambda *given: None)


def silent_frontends_are_heard(patch: Patch) -> None:
    """H2: a frontend hears the scheduler for as long as it has a link."""
    patch.setattr(Frontends, "judge", lambda *given: [])


class _NeverSilent(Silence):
    """A limit that never passes."""

    def is_silent(self, now: float) -> bool:
        """See `Silence`."""
        return False


def silent_schedulers_are_waited_for(patch: Patch) -> None:
    """H2, A1: a worker goes on alone when its link ends, and not before."""
    patch.setattr(scheduler_link, "Silence", _NeverSilent)


def silent_streams_are_read_on(patch: Patch) -> None:
    """H4, F5: a frontend waits for outputs on a stream for as long as it is open."""
    patch.setattr(worker_link, "Silence", _NeverSilent)


def first_words_are_waited_for(patch: Patch) -> None:
    """HO19: the first message of a source has no deadline."""
    expect = Hearing.expect

    def expect_later_words(hearing: Hearing, limit_s: float) -> None:
        if limit_s != FIRST_S:
            expect(hearing, limit_s)

    patch.setattr(Hearing, "expect", expect_later_words)
