"""Why a request runs or does not: made when somebody asks, from what the scheduler knows anyway."""

from __future__ import annotations

import re
from dataclasses import dataclass

from scheduler_svc.core.explain.obstacle import Reason
from scheduler_svc.core.explain.placed_reason import reason_on
from scheduler_svc.core.explain.queue_place import (
    MAX_LOOKED_AT,
    NOWHERE,
    Order,
    QueuePlace,
    place_on,
    resumed,
)
from scheduler_svc.core.explain.waiting_reason import reason_to_wait
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.slots.slot_state import SlotState
from scheduler_svc.core.state.worker import Worker

_CHOICE = re.compile(r"(:\d+)?(\.\d+)?")
"""What frontends add to the id of a call for its further prompts and choices."""


@dataclass(frozen=True)
class Progress:
    """How far a request is that a worker has, in tokens, as its reports say."""

    num_computed: int
    """Tokens computed of prompt and output together."""
    num_output: int
    max_output: int
    num_blocks: int


@dataclass(frozen=True)
class Explanation:
    """Where a request is, and why it does not run."""

    request: Request
    reason: Reason
    sentence: str
    waited_s: float | None = None
    """How long it has been waiting for a place, or for its next one; None: it has one, or rests."""
    place: QueuePlace = NOWHERE
    progress: Progress | None = None
    """None: no worker has it."""


def find_requests(core: Scheduler, request_id: str) -> list[Request]:
    """The requests of that id, of all frontends, with the further choices and prompts of their calls; oldest first."""
    size = len(request_id)
    found = [
        request
        for key, request in core.requests.items()
        if key.request_id.startswith(request_id) and _CHOICE.fullmatch(key.request_id, size)
    ]
    return sorted(found, key=lambda request: (request.arrival, request.key))


def explain(core: Scheduler, request: Request, now: float, max_looked_at: int = MAX_LOOKED_AT) -> Explanation:
    """Why `request`, which has not ended, runs or does not. Of those before it, not many more than `max_looked_at` are
    looked at."""
    aging_s = core.config.aging_s if core.config.has_classes else 0.0
    order = Order(core.queues, aging_s, now, max_looked_at)
    waited_s = None if request.entry.waits_since is None else max(now - request.entry.waits_since, 0.0)
    if request.worker_id is None:
        place, obstacle = reason_to_wait(core, request, order)
        return Explanation(request, obstacle.reason, obstacle.sentence, waited_s, place)
    worker = core.workers[request.worker_id]
    place = place_on(worker, request, order) if request in resumed(worker) else NOWHERE
    obstacle = reason_on(core, worker, request, place, order)
    progress = _progress(worker, request) if worker.table.holds(request) else None
    return Explanation(request, obstacle.reason, obstacle.sentence, waited_s, place, progress)


def _progress(worker: Worker, request: Request) -> Progress:
    table, slot = worker.table, request.slot
    assert slot is not None
    num_prompt, num_output = int(table.num_prompt[slot]), int(table.num_output[slot])
    is_decoding = table.state[slot] == SlotState.DECODE
    return Progress(
        # A decode row has computed all but its newest token, and its column stands at the prefill's end.
        num_prompt + num_output - 1 if is_decoding else int(table.num_computed[slot]),
        num_output,
        max(int(table.limit[slot]) - num_prompt, 0),
        int(table.num_blocks[slot]),
    )
