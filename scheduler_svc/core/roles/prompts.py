"""Which workers compute which prompts (PD2)."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.request import Request
from scheduler_svc.core.roles.forecast import Forecast
from scheduler_svc.core.roles.interference import MARGIN, prefill_cost_s
from scheduler_svc.core.roles.loads import load_of, num_uncached
from scheduler_svc.core.slots.worker import Worker
from signalbox.protocol.enums import WorkerRole

FROZEN_STEPS = 2
"""Steps for which nobody runs a request that is handed over, about."""


def has_roles(worker: Worker, others: Sequence[Worker]) -> bool:
    """One of them is there to decode."""
    return any(each.role is WorkerRole.DECODE for each in (worker, *others))


def rivals_for_prompt(
    worker: Worker,
    others: Sequence[Worker],
    able: Sequence[Worker],
    request: Request,
    config: SchedulerConfig,
    num_waiting: int,
) -> Sequence[Worker] | None:
    """Workers of `others` that `worker` competes with for a prompt; None: it leaves the prompt to them. `able`: all
    that have room for it now, `num_waiting` the tokens that wait for the same workers ahead of it."""
    first = [each for each in able if each.role is not WorkerRole.DECODE]
    if not first:
        return others
    if worker.role is WorkerRole.DECODE:
        if not _is_cheaper(worker, first, request, config, num_waiting):
            return None
        return [other for other in others if other.role is WorkerRole.DECODE]
    return [
        other
        for other in others
        if other.role is not WorkerRole.DECODE or _is_cheaper(other, first, request, config, num_waiting)
    ]


def _is_cheaper(
    decoder: Worker, first: Sequence[Worker], request: Request, config: SchedulerConfig, num_waiting: int
) -> bool:
    """The prompt costs less where it is decoded anyway than at any of `first`, with the hand-off behind it."""
    if config.prefill_hand_off == "always":
        return False
    is_enabled, known = config.enable_prefix_caching, next((w for w in first if w.forecast.token_s), decoder)
    here = load_of(decoder, known.forecast)
    if not here.token_s:
        return False
    cost_s = prefill_cost_s(num_uncached(decoder, request, is_enabled=is_enabled), 0, here)
    if here.num_rows and _wait_s(first, known.forecast, num_waiting) <= config.prefill_wait_s:
        return False
    blocks = -(-request.num_known_tokens // decoder.info.block_size)
    price_s = blocks / config.handoff_blocks_per_s + FROZEN_STEPS * here.base_s
    there_s = min(
        prefill_cost_s(
            num_uncached(each, request, is_enabled=is_enabled), num_waiting, load_of(each, known.forecast)
        )
        for each in first
    )
    return MARGIN * cost_s < there_s + price_s


def _wait_s(first: Sequence[Worker], fallback: Forecast, num_waiting: int) -> float:
    """Seconds until the first of them comes to a prompt that arrives now."""
    loads = [load_of(each, fallback) for each in first]
    return min(load.token_s * (load.num_prefill_ahead + num_waiting) for load in loads)
