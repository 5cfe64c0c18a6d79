"""What keeps a request from starting on a worker, or from going on there.

Reads, and changes nothing: the rules stand in `core/step/prefill_admission.py`, here they are told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from scheduler_svc.core.admission.safe_mode import SafeMode
from scheduler_svc.core.blocks.block_pool import HASH_DTYPE, NO_BLOCKS, Blocks
from scheduler_svc.core.blocks.prefix_sharing import awaits_leader
from scheduler_svc.core.blocks.side_copies import awaits_copies, reserved_for_others
from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.explain.queue_place import Order
from scheduler_svc.core.request import Request
from scheduler_svc.core.slots.state import DISPLACED, SlotState
from scheduler_svc.core.slots.worker import Worker
from scheduler_svc.core.step.displacement import blocks_of_others, excessive_row, may_displace


class Reason(Enum):
    """Why a request does not run; in the order of admin.proto."""

    RUNS = "runs"
    NEXT_STEP = "next_step"
    """Nothing keeps it."""
    NO_WORKER = "no_worker"
    """None that is there, takes something new and serves such requests."""
    WORKER_AWAY = "worker_away"
    """Its own worker has no link."""
    CLASS_SUSPENDED = "class_suspended"
    """By safe mode."""
    TENANT_LIMIT = "tenant_limit"
    OTHERS_AHEAD = "others_ahead"
    """There is room for it, and others go first."""
    NO_PLACE = "no_place"
    """`max_num_seqs` requests run."""
    NO_SLOT = "no_slot"
    NO_BLOCKS = "no_blocks"
    TOKEN_BUDGET = "token_budget"
    """Steps are full of decode rows and of prompts before it."""
    GRAMMAR = "grammar"
    """Its worker compiles its grammar."""
    GRAMMAR_TURN = "grammar_turn"
    """As many wait for their grammars as may."""
    PREFIX = "prefix"
    """Another request computes what both of them begin with."""
    HOST_COPIES = "host_copies"
    """Blocks are copied from or to the host tier for it."""
    AFFINITY = "affinity"
    """It is left for a while to the worker that has its prefix."""
    CLIENT_PAUSED = "client_paused"
    DISPLACED = "displaced"
    """It lost its place in the batch."""
    PREEMPTED = "preempted"
    """It lost its blocks."""


@dataclass(frozen=True)
class Obstacle:
    """A reason, and a sentence with the limit, its value and what is there now."""

    reason: Reason
    sentence: str


def obstacle_to(worker: Worker, request: Request, config: SchedulerConfig, order: Order) -> Obstacle | None:
    """The first thing that `request` lacks on `worker`; None: nothing. `request` has no place there, and may have a
    slot."""
    return (
        _lacks_slot(worker, request)
        or _awaits_leader(worker, request)
        or _awaits_copies(worker, request)
        or _awaits_grammar_turn(worker, request)
        or _lacks_place(worker, request, config, order)
        or _lacks_budget(worker, request, config, order.now)
        or _lacks_blocks(worker, request, config)
    )


def suspension(mode: SafeMode, request: Request) -> Obstacle:
    """Why a request rests whose class is suspended."""
    asked = {"an operator": mode.operator_level, "the error budget": mode.budget_level}
    whom = " and ".join(name for name, level in asked.items() if level is not None)
    sentence = (
        f"its class {request.base_rank} is suspended: safe mode keeps classes up to {mode.level}, by {whom}"
    )
    return Obstacle(Reason.CLASS_SUSPENDED, sentence)


def _lacks_slot(worker: Worker, request: Request) -> Obstacle | None:
    if request.slot is not None or worker.table.num_free_slots:
        return None
    count, name = worker.table.num_slots, worker.info.worker_id
    return Obstacle(Reason.NO_SLOT, f"all {count} slots of {name} are taken (num_slots)")


def _awaits_leader(worker: Worker, request: Request) -> Obstacle | None:
    if not awaits_leader(worker, request):
        return None
    assert request.leader is not None
    leader, end = request.leader.key.request_id, request.leader_end
    return Obstacle(
        Reason.PREFIX, f"request {leader} computes the first {end} tokens, which both of them begin with"
    )


def _awaits_copies(worker: Worker, request: Request) -> Obstacle | None:
    if not awaits_copies(worker, request):
        return None
    assert request.fence is not None
    count, name = len(request.fence.copies), worker.info.worker_id
    return Obstacle(Reason.HOST_COPIES, f"{count} blocks are being copied between {name} and its host tier")


def _awaits_grammar_turn(worker: Worker, request: Request) -> Obstacle | None:
    if request.slot is not None or not request.has_grammar or worker.may_prepare:
        return None
    where = f"{worker.num_preparing} requests wait on {worker.info.worker_id} for their grammars"
    return Obstacle(
        Reason.GRAMMAR_TURN, f"{where}, as many as may: half of its {worker.table.num_slots} slots"
    )


def _lacks_place(worker: Worker, request: Request, config: SchedulerConfig, order: Order) -> Obstacle | None:
    most = worker.limits.max_num_seqs
    reserved, _ = reserved_for_others(worker, request)
    if worker.num_active + reserved < most or (config.has_classes and may_displace(worker, request)):
        return None
    may_take = config.is_fair and worker.num_displaced < most // 2
    if may_take and excessive_row(worker, request, order.queues.service_received, frozenset()) is not None:
        return None
    sentence = f"all {most} places of {worker.info.worker_id} are taken (max_num_seqs {most})"
    kept = f", {reserved} of them by requests that wait for copies" if reserved else ""
    return Obstacle(Reason.NO_PLACE, sentence + kept)


def _lacks_budget(worker: Worker, request: Request, config: SchedulerConfig, now: float) -> Obstacle | None:
    name, budget = worker.info.worker_id, _budget_before(worker, request, config, now)
    if budget.num_left <= 0:
        full = f"the next step of {name} is full ({budget.limit})"
        rows = f"{budget.num_decode} tokens for rows that decode, the rest for {budget.num_prompts} prompts"
        return Obstacle(Reason.TOKEN_BUDGET, f"{full}: {rows}")
    most = config.max_num_partial_prefills
    if most and budget.num_partial >= most:
        sentence = (
            f"{budget.num_partial} prompts are partly computed on {name} (max_num_partial_prefills {most})"
        )
        return Obstacle(Reason.TOKEN_BUDGET, sentence)
    return None


class _Budget(NamedTuple):
    """Of the next step, in tokens."""

    num_left: int
    limit: str
    num_decode: int
    num_prompts: int
    """That have some of it."""
    num_partial: int
    """Those of them that go on in later steps."""


def _budget_before(worker: Worker, request: Request, config: SchedulerConfig, now: float) -> _Budget:
    """What is left when decode rows, and the prompts that go before `request`, have had theirs."""
    table, whole, cut = worker.table, worker.limits.max_num_batched_tokens, config.lower_class_prefill_tokens
    decode = table.decode_tokens - int(table.advance[table.releasing].sum())
    decode += sum(1 + int(table.drafts[slot]) for slot in table.settling)
    left, limit, num_prompts, num_partial = whole - decode, f"max_num_batched_tokens {whole}", 0, 0
    highest = worker.recent_classes.highest(now) if cut else math.inf
    for slot in table.prefilling:
        if left <= 0 or table.rank[slot] > request.rank:
            break
        if table.paused[slot] or worker.request(slot).num_crashes:
            continue
        if cut and table.rank[slot] > highest:
            left, cut = min(left, max(cut - (whole - decode - left), -(-cut // 4))), 0
            limit = (
                f"lower_class_prefill_tokens {config.lower_class_prefill_tokens}, for a higher class is about"
            )
        lacking = int(table.target[slot] - table.num_sent[slot])
        length = min(lacking, left, config.long_prefill_token_threshold or left)
        left, num_prompts, num_partial = left - length, num_prompts + 1, num_partial + (length < lacking)
    return _Budget(left, limit, decode, num_prompts, num_partial)


def _lacks_blocks(worker: Worker, request: Request, config: SchedulerConfig) -> Obstacle | None:
    name, pool = worker.info.worker_id, worker.pool
    if worker.table.held and not (config.has_classes and may_displace(worker, request)):
        sentence = f"blocks are short on {name}: {len(worker.table.held)} running requests wait for one, and go first"
        return Obstacle(Reason.NO_BLOCKS, sentence)
    if request.slot is None and request.has_grammar:
        return None  # it gets a slot only, until its grammar is ready
    needed, headroom, idle = _need(worker, request, config)
    free = pool.num_available - idle - reserved_for_others(worker, request)[1]
    if needed + headroom <= free + blocks_of_others(worker, request, config.has_classes):
        return None
    spare = f" and {headroom} to spare for those that run" if headroom else ""
    sentence = f"it needs {needed} more blocks{spare} on {name}; {free} of {pool.num_blocks} are free"
    return Obstacle(Reason.NO_BLOCKS, sentence)


def _need(worker: Worker, request: Request, config: SchedulerConfig) -> tuple[int, int, int]:
    """Blocks that it needs, blocks that have to be left over, and free ones that it would share."""
    table, slot = worker.table, request.slot
    if slot is not None and table.paused[slot] & DISPLACED:
        if table.state[slot] != SlotState.DECODE:
            return 0, 0, 0
        bound = int(table.bound[slot]) + 1 + int(table.drafts[slot])
        return max(table.blocks_needed(bound, slot), 0), 0, 0
    known = request.num_known_tokens if slot is None else int(table.num_prompt[slot] + table.num_output[slot])
    hits = _hits(worker, request, known) if config.enable_prefix_caching else NO_BLOCKS
    headroom = config.watermark_blocks_per_seq * worker.num_active
    return -(-known // table.block_size) - len(hits), headroom, worker.pool.num_idle(hits)


def _hits(worker: Worker, request: Request, num_known: int) -> Blocks:
    """Blocks on the device that it would share. What the host tier has needs new blocks too."""
    table, slot = worker.table, request.slot
    if request.needs_every_position:
        return NO_BLOCKS
    most = (num_known - 1) // table.block_size
    if slot is not None:
        return worker.pool.lookup(table.hashes(slot, 0, min(int(table.num_hashes[slot]), most)))
    if request.hash_block_size != table.block_size:
        return NO_BLOCKS
    return worker.pool.lookup(np.frombuffer(request.block_hashes, HASH_DTYPE)[:most])
