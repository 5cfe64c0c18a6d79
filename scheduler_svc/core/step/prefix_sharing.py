"""Blocks that are being computed: whoever comes second waits for them and shares them, instead of computing them again.

A request that is about to start looks for a *leader*: a running request whose prefill writes the first block that the
cache lacks, and has not reported it yet. It waits for that block only, and then for the next one. The wait ends with
the leader's report, or as soon as the leader cannot be relied on: it ended, was preempted, is paused before the block
was sent, or one of its rows was not run. A leader goes before its followers in the order of the policy, so that nothing
that it lacks could be had by them, and nobody waits in a circle.

Where a model keeps recurrent states, blocks without the state behind them are of no use to others: who comes second
waits for the state at the last boundary that both prompts have, and the leader is told to keep it (CK).
"""

from __future__ import annotations

import numpy as np

from scheduler_svc.core.state.blocks.block_pool import Blocks, Hashes
from scheduler_svc.core.state.blocks.tier import Found
from scheduler_svc.core.state.groups.checkpoints import NO_CHECKPOINT, Checkpoints
from scheduler_svc.core.state.groups.prefix import NO_PREFIX, Prefix
from scheduler_svc.core.state.groups.window import longest_hit, longest_in
from scheduler_svc.core.state.requests.prefix_wait import PrefixWait
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.slots.slot_state import SlotState
from scheduler_svc.core.state.worker import Worker


def find_prefix(worker: Worker, request: Request, is_enabled: bool) -> Prefix:
    """What the caches hold for `request`, which has no blocks. At least one token is computed, and no shared block is
    ever written."""
    if not is_enabled or request.needs_every_position:
        return NO_PREFIX
    table, slot = worker.table, request.slot
    most = (num_known(worker, request) - 1) // table.block_size
    if slot is not None:
        hashes = table.hashes(slot, 0, min(int(table.num_hashes[slot]), most))
    else:
        hashes = table.hashes_of(request)[:most]
    prefix = _on_device(worker, hashes)
    return _in_both(worker, prefix) if any(len(host) for host in worker.hosts) else prefix


def _on_device(worker: Worker, hashes: Hashes) -> Prefix:
    """The longest prefix that the device has of all groups, with a state behind it where the model keeps any."""
    hits = worker.pool.lookup(hashes)
    if worker.checkpoints is None and not (worker.windows and len(hits)):
        return Prefix(hits, [], hashes)
    length, window_hits, checkpoint = len(hits), tuple[Blocks, ...](), NO_CHECKPOINT
    while True:
        if worker.checkpoints is not None:
            length, checkpoint = worker.checkpoints.longest(hashes[:length])
        before = length
        if worker.windows:
            length, window_hits = longest_hit(worker.windows, hashes[:length])
        if length == before or worker.checkpoints is None:
            break
    found = tuple(map(Found.on, window_hits))
    state = Found.on(np.array([checkpoint], np.int32)) if checkpoint != NO_CHECKPOINT else None
    return Prefix(hits[:length], [], hashes, len(hits), found, state)


def _in_both(worker: Worker, prefix: Prefix) -> Prefix:
    """The longest prefix that device and host tier have together (WB5, CK5); `prefix`, where the device alone has as
    long a one."""
    hashes, hits = prefix.hashes, worker.pool.lookup(prefix.hashes)
    host_hits = worker.host.lookup(hashes[len(hits) :].tolist()) if len(worker.host) else []
    if not worker.windows and worker.checkpoints is None:
        return prefix._replace(host_hits=host_hits, num_from_host=len(host_hits))
    _, *of_windows = worker.tiers
    checkpoints = worker.checkpoints
    states = of_windows.pop() if checkpoints is not None else None
    most = length = len(hits) + len(host_hits)
    window_hits, state = tuple[Found, ...](), None
    while length > prefix.num_blocks:
        if states is not None and checkpoints is not None:
            length, state = checkpoints.longest_in(states, hashes[:length])
        before = length
        if worker.windows:
            length, window_hits = longest_in(worker.windows, of_windows, hashes[:length])
        if length == before or states is None:
            break
    if length <= prefix.num_blocks:
        return prefix._replace(branch=max(prefix.branch, most))
    num_hits = min(length, len(hits))
    fetched = host_hits[: length - num_hits]
    return Prefix(
        hits[:num_hits], fetched, hashes, most, window_hits, state, num_from_host=length - prefix.num_blocks
    )


def num_known(worker: Worker, request: Request) -> int:
    """Tokens of `request` that exist, by now if it has a slot on `worker`."""
    table, slot = worker.table, request.slot
    return request.num_known_tokens if slot is None else int(table.num_prompt[slot] + table.num_output[slot])


def find_leader(worker: Worker, request: Request, prefix: Prefix) -> PrefixWait | None:
    """The request that computes the block that follows `prefix`, or the state behind one; None: nobody that `request`
    may wait for."""
    if worker.checkpoints is not None:
        return _find_state(worker, worker.checkpoints, request, prefix)
    table, index = worker.table, prefix.num_blocks
    if index == len(prefix.hashes):
        return None
    end = (index + 1) * table.block_size
    unreported = np.flatnonzero((table.num_computed < end) & (end <= table.target))
    if not len(unreported) or unreported.tolist() == [request.slot]:
        return None
    same = table.hashes_at(unreported, np.full(len(unreported), index)) == prefix.hashes[index]
    for other in unreported[same & (table.num_hashes[unreported] > index)].tolist():
        if _leads(worker, other, end, request):
            leader = worker.request(other)
            return PrefixWait(leader, other, leader.key.request_id, end)
    return None


def _find_state(
    worker: Worker, checkpoints: Checkpoints, request: Request, prefix: Prefix
) -> PrefixWait | None:
    """The request whose state will be kept furthest along `request`, or can be."""
    table, stride = worker.table, checkpoints.stride
    least = prefix.num_blocks + stride
    if least > len(prefix.hashes):
        return None
    computes = table.num_computed < table.target
    computes[list(checkpoints.ordered)] = True
    others = np.flatnonzero(computes & (table.num_hashes >= least))
    others = others[table.hashes_at(others, np.full(len(others), least - 1)) == prefix.hashes[least - 1]]
    best: PrefixWait | None = None
    for other in others.tolist():
        end = _parting_boundary(worker, checkpoints, other, prefix.hashes)
        if not checkpoints.is_coming(other, end) and not checkpoints.can_keep(
            other, end, int(table.num_sent[other])
        ):
            end = checkpoints.last_coming(other, end)
        is_further = end > (best.end if best is not None else prefix.num_blocks * table.block_size)
        if other != request.slot and is_further and _leads(worker, other, end, request):
            leader = worker.request(other)
            best = PrefixWait(leader, other, leader.key.request_id, end, is_state=True)
    return best


def _parting_boundary(worker: Worker, checkpoints: Checkpoints, slot: int, hashes: Hashes) -> int:
    """The last boundary, in tokens, up to which the request in `slot` begins with these blocks."""
    count = min(len(hashes), int(worker.table.num_hashes[slot]))
    differs = np.flatnonzero(worker.table.hashes(slot, 0, count) != hashes[:count])
    num_common = int(differs[0]) if len(differs) else count
    position: int = checkpoints.group.last_boundary(num_common * worker.table.block_size)
    return position


def awaits_leader(worker: Worker, request: Request) -> bool:
    """Whether the leader that was found for `request` is still on its way to the block. Costs next to nothing, so that
    a crowd may wait."""
    wait, table = request.history.prefix_wait, worker.table
    if wait is None:
        return False
    slot, end = wait.slot, wait.end
    if slot >= table.num_slots:
        return False
    if table.requests[slot] is not wait.leader:
        return False
    if wait.is_state:
        checkpoints = worker.checkpoints
        if checkpoints is None or not checkpoints.is_coming(slot, end):
            return False
    elif int(table.num_computed[slot]) >= end:
        return False
    return _leads(worker, slot, end, request)


def _leads(worker: Worker, slot: int, end: int, request: Request) -> bool:
    """Whether the request in `slot` is on its way to `end` tokens, and `request` may rely on that."""
    table = worker.table
    if table.state[slot] not in (SlotState.PREFILL, SlotState.DECODE):
        return False
    if table.paused[slot] and table.num_sent[slot] < end:
        return False
    if table.started_at[slot] < worker.reset_at:
        return False  # its blocks will not be published
    leader = worker.request(slot)
    return not leader.history.was_refused and leader.order < request.order
