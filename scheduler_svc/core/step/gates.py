"""The gates on a request's way into a step: admission stops at the first that is closed, and an explanation names it.

A gate is a rule, and is looked through without changing anything: whoever passes all of them starts, or goes on, once
others have made what room they have to. What a closed gate means for those behind depends on its list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler_svc.core.parts.fetch.side_copies import (
    awaits_copies,
    find_fence,
    reserved_for_others,
)
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.step.capacity import StepCapacity
from scheduler_svc.core.step.displacement import blocks_of_others, may_displace
from scheduler_svc.core.step.fetches import find_fetch
from scheduler_svc.core.step.prefix_sharing import awaits_leader, find_leader, num_known
from scheduler_svc.core.step.shortage import covers

Rule = Callable[[StepCapacity, Request], bool]


@dataclass(eq=False, slots=True)
class Gate:
    """One rule of starting and of going on."""

    is_closed: Rule
    """`StepCapacity` may have been taken from by those before the request."""


def first_closed(gates: Sequence[Gate], capacity: StepCapacity, request: Request) -> Gate | None:
    """The gate that `request` stops at; None: it passes all of them."""
    for gate in gates:
        if gate.is_closed(capacity, request):
            return gate
    return None


def _lacks_slot(capacity: StepCapacity, request: Request) -> bool:
    return request.slot is None and not capacity.worker.table.num_free_slots


def _awaits_leader(capacity: StepCapacity, request: Request) -> bool:
    return request.history.prefix_wait is not None and awaits_leader(capacity.worker, request)


def _awaits_copies(capacity: StepCapacity, request: Request) -> bool:
    return request.history.fence is not None and awaits_copies(capacity.worker, request)


def _awaits_grammar_turn(capacity: StepCapacity, request: Request) -> bool:
    return request.has_grammar and request.slot is None and not capacity.may_prepare


def _lacks_place(capacity: StepCapacity, request: Request) -> bool:
    """There is no place for it, and nobody who would have to make one."""
    worker = capacity.worker
    reserved, _ = reserved_for_others(worker, request)
    return (
        worker.num_active + reserved >= worker.limits.max_num_seqs
        and not _is_of_higher_class(capacity, request)
        and capacity.excessive_row(request) is None
    )


def _is_short(capacity: StepCapacity, request: Request) -> bool:
    """Rows that run lack blocks, and go first."""
    return capacity.is_short and not _is_of_higher_class(capacity, request)


def _is_of_higher_class(capacity: StepCapacity, request: Request) -> bool:
    return capacity.config.has_classes and may_displace(capacity.worker, request)


def _lacks_tokens(capacity: StepCapacity, request: Request) -> bool:
    """Nothing is left when those before it have had theirs."""
    advance = capacity.advance_of(request)
    return capacity.num_left <= 0 or advance > capacity.num_left + capacity.num_withheld


def _are_prompts_partial(capacity: StepCapacity, request: Request) -> bool:
    most = capacity.config.max_num_partial_prefills
    return most > 0 and capacity.num_partial(request) >= most


def _is_unreported(capacity: StepCapacity, request: Request) -> bool:
    """Its length is not exact before the steps that ran it have reported."""
    return request.slot is not None and not capacity.worker.is_resumable(request.slot)


def _has_leader(capacity: StepCapacity, request: Request) -> bool:
    return find_leader(capacity.worker, request, capacity.prefix) is not None


def _shares_copies(capacity: StepCapacity, request: Request) -> bool:
    """Others' copies bring what it lacks. It waits for copies once per start only."""
    worker = capacity.worker
    return (
        bool(worker.fences)
        and request.history.fence is None
        and find_fence(worker, capacity.prefix) is not None
    )


def _is_split(capacity: StepCapacity, request: Request) -> bool:
    """Its prompt is too long for this step, and will fit into another one. What could never run in one step runs in
    chunks all the same: a request that has outgrown the budget by its output."""
    worker, prefix = capacity.worker, capacity.prefix
    if capacity.config.enable_chunked_prefill:
        return False
    length = num_known(worker, request) - prefix.num_blocks * worker.table.block_size
    return capacity.num_left < length <= worker.limits.max_num_batched_tokens


def _lacks_blocks(capacity: StepCapacity, request: Request) -> bool:
    """There are not enough blocks for it, with those that others would have to give up."""
    if not capacity.is_lacking:
        return False
    of_others = blocks_of_others(capacity.worker, request, capacity.config.has_classes)
    return not covers(of_others, capacity.lacking)


def _wants_fetch(capacity: StepCapacity, request: Request) -> bool:
    """A source of the worker brings blocks to it before it starts. It waits once per start for a disk or another
    worker, and may wait for copies of the host tier after that."""
    worker = capacity.worker
    if not worker.parts.sources:
        return False
    capacity.fetch = find_fetch(worker, request, capacity.prefix, capacity.new_blocks, capacity.now)
    return capacity.fetch is not None


SLOT = Gate(_lacks_slot)
PREFIX = Gate(_awaits_leader)
COPIES = Gate(_awaits_copies)
GRAMMAR_TURN = Gate(_awaits_grammar_turn)
PLACE = Gate(_lacks_place)
TOKENS = Gate(_lacks_tokens)
PARTIAL_PROMPTS = Gate(_are_prompts_partial)
SHORTAGE = Gate(_is_short)
REPORTS = Gate(_is_unreported)
LEADER = Gate(_has_leader)
SHARED_COPIES = Gate(_shares_copies)
WHOLE_PROMPT = Gate(_is_split)
BLOCKS = Gate(_lacks_blocks)
FETCH = Gate(_wants_fetch)

OF_TURN = (SLOT, PREFIX, COPIES, GRAMMAR_TURN)
"""Cheap to look at. Who stops here holds up nobody: others are looked at."""
OF_STEP = (PLACE, TOKENS, PARTIAL_PROMPTS, SHORTAGE, REPORTS)
"""Prompts of its class and those above have gone on. Who stops here holds up whoever comes behind."""
OF_START = (LEADER, SHARED_COPIES, WHOLE_PROMPT, BLOCKS)
"""What it needs was looked up."""
HOLD_UP_NOBODY = (LEADER, SHARED_COPIES, FETCH)
"""The gates of a start at which whoever stops is passed over."""


def gates_for(capacity: StepCapacity, request: Request) -> tuple[Gate, ...]:
    """All on the way of `request`. One that waits for its grammar gets a slot only, and one that was displaced has its
    blocks but for the next ones."""
    if request.slot is None and request.has_grammar:
        return OF_TURN + OF_STEP
    if capacity.is_displaced(request):
        return (*OF_TURN, *OF_STEP, BLOCKS)
    return (*OF_TURN, *OF_STEP, *OF_START, FETCH)
