"""What a worker that says hello has of hand-offs: whose a request is of which two workers tell, and how it goes on
(HO9)."""

from __future__ import annotations

from scheduler_svc.core.moves.desk import HandoffDesk
from scheduler_svc.core.recovery.snapshot import SlotSnapshot
from scheduler_svc.core.state.requests.handoff import Phase
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import SlotStatus

LEGS_OF_TERM = 1024
"""Legs of an attempt that the scheduler of one term gives, but for very many hand-offs of it."""
LAST_TERM = 1 << 21
"""From this term on legs are counted on from those that are found: they have 32 bits."""


def last_leg_before(found: int, term: int) -> int:
    """The leg above which the scheduler of a term counts on, for a request with the leg `found`. Which legs others have
    told before, not all of which have come to where it was found, it does not know; their terms were lower."""
    return max(found + LEGS_OF_TERM if term >= LAST_TERM else found, min(term, LAST_TERM) * LEGS_OF_TERM)


def take_from_other(desk: HandoffDesk, worker: Worker, slot: SlotSnapshot, known: Request) -> bool:
    """Whether `known`, which another worker has told of, is `worker`'s by what `slot` says. Then that one has it no
    more."""
    wait = desk.waits.of(known)
    if (
        wait is None
        or wait.other != worker.process
        or not _is_its_own(wait.transfer, wait.is_import, slot, known)
    ):
        return False
    del desk.waits.by_key[known.key]
    if wait.worker.table.holds(known):
        assert known.slot is not None
        wait.worker.hand_off(known.slot)
    known.thaw()
    known.leg, known.newest_leg = slot.leg, max(known.newest_leg, slot.leg)
    return True


def _is_its_own(transfer: int, is_import: bool, slot: SlotSnapshot, known: Request) -> bool:
    if is_import:  # the source runs it, or has it frozen for another: it was let go on
        return slot.status != SlotStatus.FROZEN or slot.transfer != transfer
    if slot.status == SlotStatus.IMPORTED:
        return slot.transfer == transfer
    return slot.leg > known.leg


def settle(
    desk: HandoffDesk, worker: Worker, slot: SlotSnapshot, request: Request, now: float, *, is_met: bool
) -> None:
    """`request` was adopted as what `slot` says that it is, or was when it was frozen. `is_met`: this scheduler knew
    that it is there, or knows by now; else what the other end says is waited for."""
    table, handoff, wait = worker.table, request.handoff, desk.waits.of(request)
    if handoff is not None and (slot.status != SlotStatus.FROZEN or handoff.transfer != slot.transfer):
        desk.stop(handoff, "source_link", now, source_knows=True)
        handoff = None
    if slot.status not in (SlotStatus.FROZEN, SlotStatus.IMPORTED):
        if wait is not None:
            del desk.waits.by_key[request.key]
        return
    is_import = slot.status == SlotStatus.IMPORTED
    if is_import and is_met and wait is None:
        desk.commit_found(request, worker)
        return
    table.freeze(slot.slot)
    if handoff is not None and handoff.phase is Phase.FROZEN:
        handoff.source, desk.ends_of(worker).exports[slot.slot] = worker, handoff
    elif wait is not None:
        wait.worker = worker
    elif is_met:
        desk.thaw(request, worker)
    else:
        assert slot.other is not None
        desk.waits.add(request, worker, slot.other, slot.transfer, is_import=is_import, now=now)
