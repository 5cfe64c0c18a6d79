"""What workers say of grammars that they compile."""

from __future__ import annotations

from scheduler_svc.core.cluster.frontends import End
from scheduler_svc.core.cluster.register import Register
from scheduler_svc.core.state.requests.request import Request, RequestStatus
from scheduler_svc.core.state.slots.slot_state import SlotState
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step.report import DivergenceError


def grammar_ready(worker: Worker, slot: int, request_id: str, attempt: int) -> None:
    """The worker has compiled the grammar of a request: it starts when there is room. Raises DivergenceError."""
    if _preparing(worker, slot, request_id, attempt) is not None:
        worker.table.grammar_ready(slot)


def grammar_failed(worker: Worker, slot: int, request_id: str, attempt: int, register: Register) -> None:
    """The worker has ended a request whose grammar cannot be compiled; its frontend hears it from there. Raises
    DivergenceError."""
    request = _preparing(worker, slot, request_id, attempt)
    if request is not None:
        worker.release(slot, RequestStatus.FINISHED_ERROR)
        register.forget_ended(request, End(worker.process, request.leg))


def _preparing(worker: Worker, slot: int, request_id: str, attempt: int) -> Request | None:
    """The request that a worker says something of; None when it was cancelled meanwhile, and the slot perhaps given to
    another."""
    table = worker.table
    if slot >= table.num_slots:
        raise DivergenceError(f"a grammar of slot {slot}, of {table.num_slots}")
    request = table.requests[slot]
    if request is None or table.state[slot] != SlotState.PREPARING:
        return None
    same = (request.key.request_id, request.attempt) == (request_id, attempt)
    return request if same else None
