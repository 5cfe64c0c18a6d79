"""The figures of a worker by which roles are weighed."""

from __future__ import annotations

import numpy as np

from scheduler_svc.core.request import Request
from scheduler_svc.core.roles.forecast import Forecast
from scheduler_svc.core.roles.interference import StepLoad
from scheduler_svc.core.slots.worker import Worker


def load_of(worker: Worker, fallback: Forecast) -> StepLoad:
    """What it has now. `fallback`: step times of another one, taken while its own are not known."""
    table = worker.table
    fitted = worker.forecast if worker.forecast.token_s else fallback
    return StepLoad(
        num_rows=len(table.decode_slots) + len(table.settling) + len(table.importing),
        prefill_share=worker.forecast.prefill_share,
        num_prefill_ahead=num_prefill_ahead(worker),
        base_s=fitted.base_s,
        token_s=fitted.token_s,
        token_budget=worker.limits.max_num_batched_tokens,
    )


def num_prefill_ahead(worker: Worker) -> int:
    """Prompt tokens that it has taken, and has still to compute."""
    slots = np.array(list(worker.table.prefilling), np.int64)
    if not len(slots):
        return 0
    return int((worker.table.target[slots] - worker.table.num_computed[slots]).sum())


def num_uncached(worker: Worker, request: Request, *, is_enabled: bool) -> int:
    """Tokens of a waiting request that the worker would have to compute. `is_enabled`: cached blocks are reused."""
    if not is_enabled or request.needs_every_position or not request.block_hashes:
        return request.num_known_tokens
    cached = worker.pool.prefix_length(worker.names_of(request).hashes) * worker.info.block_size
    return max(request.num_known_tokens - cached, 1)
