"""Why a request that a worker has does not run there, or how far it is."""

from __future__ import annotations

from scheduler_svc.core.explain.obstacle import Obstacle, Reason, obstacle_to, of_layers, suspension
from scheduler_svc.core.explain.queue_place import Order, QueuePlace, first_waiting
from scheduler_svc.core.explain.role_words import explain_role
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.request import Request, RequestStatus
from scheduler_svc.core.state.slots.slot_state import DISPLACED, HELD, SlotState
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.block_groups import SPINE


def reason_on(core: Scheduler, worker: Worker, request: Request, place: QueuePlace, order: Order) -> Obstacle:
    """`place` is that among those whom `worker` is to let start or go on."""
    table, slot, name = worker.table, request.slot, worker.info.worker_id
    assert slot is not None
    if not worker.attached:
        away_s, grace_s = order.now - worker.detached_at, core.config.worker_grace_s
        sentence = f"{name} has been away for {away_s:.1f} s; after {grace_s:g} s (worker_grace_s) the request is lost"
        return Obstacle(Reason.WORKER_AWAY, sentence)
    if request.is_frozen:
        return Obstacle(Reason.HANDED_OVER, _to_whom(core, request, name))
    if request.client_paused:
        return Obstacle(Reason.CLIENT_PAUSED, "its client does not read what it has already")
    if request.suspended:
        return suspension(core.safe_mode, request)
    if table.state[slot] == SlotState.PREPARING and slot not in table.prepared:
        return Obstacle(Reason.GRAMMAR, f"{name} compiles its grammar")
    if request.status is RequestStatus.WAITING_FOR_FSM:
        return _of_resumable(core, worker, request, place, order)
    if request.status is RequestStatus.PREEMPTED:
        resumable = _of_resumable(core, worker, request, place, order)
        return Obstacle(Reason.PREEMPTED, f"its blocks were taken; {resumable.sentence}")
    if table.paused[slot] & DISPLACED:
        resumable = _of_resumable(core, worker, request, place, order)
        return Obstacle(
            Reason.DISPLACED, f"others have its place, and it keeps its blocks; {resumable.sentence}"
        )
    if table.paused[slot] & HELD:
        group = min(range(len(worker.pools)), key=lambda number: worker.pools[number].num_available)
        return Obstacle(Reason.NO_BLOCKS, f"its next token needs another block{_on(worker, group)}")
    if (short := _short_of(worker, slot)) is not None:
        return Obstacle(Reason.NO_BLOCKS, f"its next chunk needs another block{_on(worker, short)}")
    return Obstacle(Reason.RUNS, _runs(core, worker, request))


def _to_whom(core: Scheduler, request: Request, name: str) -> str:
    """Who takes a frozen request over."""
    wait, handoff = core.handoffs.waits.of(request), request.handoff
    if wait is not None:
        return f"it was being handed over, and worker {wait.other.worker_id} has not said whether it has it"
    if handoff is not None:
        return f"worker {handoff.target.info.worker_id} takes it over from {name}, and has all but the last of it"
    return f"it was not handed over after all, and goes on on {name} with its next step"


def _short_of(worker: Worker, slot: int) -> int | None:
    """The group of which a prompt that goes on has no block and finds none (GR5); None: it has what it needs, or a
    chunk of its own in flight brings some."""
    table = worker.table
    sent = int(table.num_sent[slot])
    if (
        table.state[slot] != SlotState.PREFILL
        or sent == table.target[slot]
        or sent > table.num_computed[slot]
    ):
        return None
    rooms = (window.room(slot, window.pool.num_available) for window in worker.windows)
    return next((number for number, room in enumerate(rooms, SPINE + 1) if room <= sent), None)


def _on(worker: Worker, group: int) -> str:
    pool = worker.pools[group]
    free = f"{pool.num_available} of {pool.num_blocks} are free"
    return f"{of_layers(worker, group)} on {worker.info.worker_id}; {free}"


def _of_resumable(
    core: Scheduler, worker: Worker, request: Request, place: QueuePlace, order: Order
) -> Obstacle:
    """What a request lacks that its worker is to let start or go on."""
    obstacle = obstacle_to(worker, request, core.config, order)
    if obstacle is not None:
        return obstacle
    if place.first is not None:
        name, first = worker.info.worker_id, place.first.key.request_id
        return Obstacle(Reason.OTHERS_AHEAD, f"request {first}, which {name} has taken too, goes on first")
    waiting = None if worker.draining else first_waiting(worker, order)
    if waiting is not None and order.goes_before(waiting, request):
        return Obstacle(Reason.OTHERS_AHEAD, f"request {waiting.key.request_id}, which waits, goes first")
    return Obstacle(Reason.NEXT_STEP, "nothing keeps it: it is for the next step")


def _runs(core: Scheduler, worker: Worker, request: Request) -> str:
    table, slot, name = worker.table, request.slot, worker.info.worker_id
    assert slot is not None
    if table.state[slot] == SlotState.PREFILL:
        alone = ", in steps of its own: it may have caused a crash" if request.num_crashes else ""
        computed, target = int(table.num_computed[slot]), int(table.target[slot])
        return f"{name} has computed {computed} of its {target} tokens{alone}"
    most = max(int(table.limit[slot] - table.num_prompt[slot]), 0)
    made = f"{name} has made {int(table.num_output[slot])} of at most {most} output tokens"
    return made + explain_role(core.policies.disaggregation, request, worker)
