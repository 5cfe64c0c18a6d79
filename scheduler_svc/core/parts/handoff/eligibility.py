"""Whether a request can go from one worker to another, and why not."""

from __future__ import annotations

from scheduler_svc.core.parts.handoff.blocks import blocks_wanted, num_available
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.slots.slot_state import SlotState
from scheduler_svc.core.state.worker import Worker


def same_layout(source: Worker, target: Worker) -> bool:
    """What one has written the other can go on from (HO1)."""
    return source is not target and not what_differs(source, target)


def what_differs(source: Worker, target: Worker) -> str:
    """The first thing that keeps all requests of `source` from going on at `target`, and what to do; empty: nothing
    does (HO1)."""
    mine, theirs = source.info, target.info
    ours, other = mine.worker_id, theirs.worker_id
    if mine.model != theirs.model:
        return f"worker {other} serves the model {theirs.model!r}, and worker {ours} {mine.model!r}"
    if not mine.kv_layout or not theirs.kv_layout:
        name = theirs.worker_id if mine.kv_layout else mine.worker_id
        return f"worker {name} hands no requests over: start it with --hand-off, if its runner can"
    if mine.identity != theirs.identity:
        return (
            f"worker {other} has the identity {theirs.identity}, and worker {ours} {mine.identity}: requests go on"
            " with the same weights and kind of numbers only"
        )
    if mine.block_size != theirs.block_size:
        return (
            f"worker {other} has blocks of {theirs.block_size} tokens, and worker {ours} of {mine.block_size}:"
            " start both with one --block-size"
        )
    if mine.kv_layout != theirs.kv_layout:
        return (
            f"worker {other} lays out its cache in another way than worker {ours}: start both with the same"
            " settings of the cache, and the same release"
        )
    return ""


def is_full(worker: Worker) -> bool:
    """Blocks or places are short: a request is held, or waits for blocks or a place that it had."""
    return bool(worker.table.held) or worker.table.has_waiting


def why_request_stays(request: Request, source: Worker) -> str:
    """Why `request`, which `source` has, cannot be handed over to anybody (HO13); empty: it can."""
    if not source.attached or source.vitals.has_left or not source.table.holds(request):
        return f"worker {source.info.worker_id} is away"
    if request.handoff is not None or request.is_frozen:
        return "it is being handed over already"
    if request.is_pooling:
        return "pooling requests are not handed over"
    if request.num_crashes:
        return "it may have caused a crash, and stays where it is until its next token"
    slot = request.slot
    assert slot is not None
    table = source.table
    if request.wants_prompt_logprobs and table.num_output[slot] <= request.num_prior_output_tokens:
        return "positions of its prompt are still to be read"
    if slot in table.refused:
        return "its worker did not run a row of it"
    return ""


def why_not_there(request: Request, source: Worker, target: Worker, watermark: int) -> str:
    """Why `target` cannot take over `request`, which could be handed over; empty: it can (HO1). `watermark`: blocks
    that are left per request that runs there."""
    name = target.info.worker_id
    if target is source:
        return f"worker {name} has it already"
    if difference := what_differs(source, target):
        return difference
    if not target.takes_new:
        return f"worker {name} takes nothing new"
    if request.key.frontend_instance in target.vitals.unheard_by:
        return f"its frontend does not hear worker {name}"
    table, slot = target.table, request.slot
    assert slot is not None
    if int(source.table.limit[slot]) > target.info.max_request_tokens:
        return f"worker {name} has no requests as long as it may become"
    if not table.num_free_slots:
        return f"worker {name} has no free slot"
    if target.num_active >= target.limits.max_num_seqs:
        return f"worker {name} has no place in its batch (max_num_seqs)"
    if table.state[slot] == SlotState.PREPARING and not target.may_prepare:
        return f"worker {name} has as many requests that wait for their grammar as it may"
    return _lacks_blocks(source, slot, target, watermark)


def _lacks_blocks(source: Worker, slot: int, target: Worker, watermark: int) -> str:
    if not source.table.num_blocks[slot]:
        return ""
    wanted, available = blocks_wanted(source, slot), num_available(target)
    headroom = watermark * (target.num_active + 1)
    for first, end, free in zip(wanted.firsts, wanted.ends, available, strict=True):
        if end - first + headroom > free:
            return (
                f"worker {target.info.worker_id} has {free} blocks free, and it takes {end - first} with"
                f" {headroom} to spare"
            )
    return ""
