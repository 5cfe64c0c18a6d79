"""Why a request runs on no worker yet."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_svc.core.explain.obstacle import Obstacle, Reason, obstacle_to, suspension
from scheduler_svc.core.explain.queue_place import Order, QueuePlace, place_of, resumed
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import WorkerHealth


def reason_to_wait(core: Scheduler, request: Request, order: Order) -> tuple[QueuePlace, Obstacle]:
    """Its place among all that wait for the same workers, and what it lacks there."""
    workers = [w for w in core.workers.values() if w.info.model == request.model]
    able = [worker for worker in workers if _unfit(core, worker, request, order.now) is None]
    kinds = {True for worker in able if worker.info.serves_pooling}
    kinds |= {False for worker in able if worker.info.serves_generation}
    place = place_of(request, order, kinds or {request.is_pooling})
    assert request.entry.account is not None
    throttled_by = request.entry.account.tenant.throttled_by(order.now)
    if not able:
        return place, _no_worker(core, request, workers, order.now)
    if request.suspended:
        return place, suspension(core.safe_mode, request)
    if throttled_by is not None:
        return place, Obstacle(Reason.TENANT_LIMIT, throttled_by)
    return place, _on_any(core, request, able, place, order)


def _unfit(core: Scheduler, worker: Worker, request: Request, now: float) -> str | None:
    """Why a worker of its model does not take the request at present; None: it might."""
    if not worker.attached:
        return "is away"
    if worker.draining:
        return "is being drained"
    if worker.vitals.has_left:
        return "is leaving"
    if worker.health is not WorkerHealth.GOOD:
        return f"is suspect ({worker.health.name.lower()})"
    if request.key.frontend_instance in worker.vitals.unheard_by:
        return "cannot be reached from the frontend that has the request"
    if not worker.info.serves(request):
        return f"serves no {'pooling' if request.is_pooling else 'generation'} requests"
    if not worker.can_run(request):
        return f"takes {worker.max_known_tokens(request.is_pooling)} tokens at most"
    if not core.admission.continuation.may_take(worker, request, now):
        return f"has {worker.info.identity}, and others have begun its output"
    return None


def _no_worker(core: Scheduler, request: Request, workers: Sequence[Worker], now: float) -> Obstacle:
    if not workers:
        left_s = max(core.admission.no_worker_until(request.model) - now, 0.0)
        sentence = (
            f"no worker serves the model {request.model!r}; it is refused in {left_s:.1f} s if none comes"
        )
        return Obstacle(Reason.NO_WORKER, sentence)
    unfit = ", ".join(f"{worker.info.worker_id} {_unfit(core, worker, request, now)}" for worker in workers)
    return Obstacle(Reason.NO_WORKER, f"no worker takes it now: {unfit}")


def _on_any(
    core: Scheduler, request: Request, able: Sequence[Worker], place: QueuePlace, order: Order
) -> Obstacle:
    """What it lacks on the worker that has least to do; or who goes before it."""
    by_load = sorted(able, key=lambda worker: worker.load)
    obstacles = {worker.info.worker_id: _of_new(core, worker, request, order) for worker in by_load}
    favourite = _favourite(request, able, core, order.now)
    if favourite is not None and (there := obstacles[favourite.info.worker_id]) is not None:
        return _left_for(favourite, request, there, order.now) if len(able) > 1 else there
    first = next(iter(obstacles.values()))
    if first is not None and None not in obstacles.values():
        return first
    if request.num_crashes:
        return Obstacle(Reason.NEXT_STEP, "it may have caused a crash: it waits for a step of its own")
    if place.first is None:
        return Obstacle(Reason.NEXT_STEP, "nothing keeps it: it is for the next step")
    theirs = [_of_new(core, worker, place.first, order) for worker in by_load]
    sentence = f"request {place.first.key.request_id} goes first"
    if (why := theirs[0]) is not None and None not in theirs:
        sentence += f", and waits itself: {why.sentence}"
    return Obstacle(Reason.OTHERS_AHEAD, sentence)


def _of_new(core: Scheduler, worker: Worker, request: Request, order: Order) -> Obstacle | None:
    """What a request without a slot lacks on `worker`: something there, or its turn."""
    obstacle = obstacle_to(worker, request, core.config, order)
    if obstacle is not None:
        return obstacle
    before = [other for other in resumed(worker) if not order.goes_before(request, other)]
    if not before:
        return None
    sentence = f"{len(before)} requests that {worker.info.worker_id} has taken go on first"
    return Obstacle(Reason.OTHERS_AHEAD, sentence)


def _favourite(request: Request, able: Sequence[Worker], core: Scheduler, now: float) -> Worker | None:
    """The worker that it is left for at present."""
    if not request.affinity.holds(now):
        return None
    return next((worker for worker in able if worker.info.worker_id == request.affinity.worker_id), None)


def _left_for(favourite: Worker, request: Request, there: Obstacle, now: float) -> Obstacle:
    assert request.affinity.until is not None
    left_ms = (request.affinity.until - now) * 1e3
    where = f"left for {favourite.info.worker_id}, which has its prefix, for {left_ms:.0f} ms more"
    return Obstacle(Reason.AFFINITY, f"{where}; there: {there.sentence}")
