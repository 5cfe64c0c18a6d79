"""What keeps a request from starting on a worker, or from going on there, in words.

The rules are the gates of `core/step/gates.py`: here they are run dry, and the first closed one is told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from scheduler_svc.core.explain.queue_place import Order
from scheduler_svc.core.parts.fetch.side_copies import find_fence, reserved_for_others
from scheduler_svc.core.queue.safe_mode import SafeMode
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.groups.window import WindowBlocks
from scheduler_svc.core.state.requests.prefix_wait import PrefixWait
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.fence import Fence
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step import gates
from scheduler_svc.core.step.capacity import StepCapacity
from scheduler_svc.core.step.prefix_sharing import find_leader, num_known
from signalbox.protocol.block_groups import SPINE


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
    """Its class is suspended by safe mode."""
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
    """Another request computes what both of them begin with, or the state behind that."""
    HOST_COPIES = "host_copies"
    """Blocks are copied from or to the host tier for it."""
    AFFINITY = "affinity"
    """It is left for a while to the worker that has its prefix."""
    CLIENT_PAUSED = "client_paused"
    DISPLACED = "displaced"
    """It lost its place in the batch."""
    PREEMPTED = "preempted"
    """It lost its blocks."""
    HANDED_OVER = "handed_over"
    """It is frozen: another worker takes it over."""


@dataclass(frozen=True)
class Obstacle:
    """A reason, and a sentence with the limit, its value and what is there now."""

    reason: Reason
    sentence: str


def suspension(mode: SafeMode, request: Request) -> Obstacle:
    """Why a request rests whose class is suspended."""
    levels = {"an operator": mode.operator_level, "the error budget": mode.budget_level}
    whom = " and ".join(name for name, level in levels.items() if level is not None)
    sentence = f"its class {request.entry.priority} is suspended: safe mode keeps classes up to {mode.level}, by {whom}"
    return Obstacle(Reason.CLASS_SUSPENDED, sentence)


def obstacle_to(worker: Worker, request: Request, config: SchedulerConfig, order: Order) -> Obstacle | None:
    """The first gate that stops `request` on `worker`; None: all are open. `request` has no place there, and may have a
    slot."""
    dry = DryStep(worker, config, order)
    dry.make_room_for(request)
    gate = gates.first_closed(gates.gates_for(dry, request), dry, request)
    if gate is None:
        return None
    reason, tell = WORDS[gate]
    return Obstacle(reason, tell(dry, request))


class DryStep(StepCapacity):
    """The next step of a worker as it would be for whoever is first in it. Nothing is taken from the worker."""

    def __init__(self, worker: Worker, config: SchedulerConfig, order: Order) -> None:
        table = worker.table
        number = worker.next_step_id % len(table.lanes)
        lane = table.lanes[number]
        self.num_decode = lane.num_tokens - int(lane.advance[table.releasing].sum())
        """Tokens for rows that decode."""
        settling = [slot for slot in table.settling if table.lane[slot] == number]
        self.num_decode += sum(1 + int(table.drafts[slot]) for slot in settling)
        num_tokens = worker.limits.max_num_batched_tokens - self.num_decode
        received, is_short = order.queues.service_received, bool(table.held)
        super().__init__(worker, config, num_tokens, received, is_short=is_short, now=order.now)
        self.name = worker.info.worker_id
        self.num_prompts = 0
        """Prompts that have a chunk."""
        self.num_taken = [0 for _ in worker.windows]
        """Blocks of each group but the spine for the chunks of these prompts."""
        self.prefilling = list(table.prefilling)
        self.leave_out({slot for slot in table.prefilling if worker.request(slot).num_crashes})

    def make_room_for(self, request: Request) -> None:
        """Prompts that go before `request` have their chunks, and what it needs is looked up."""
        self.continue_prefills(request.entry.effective_priority)
        self.look_up(request)

    def continue_prompt(self, slot: int) -> None:
        """A chunk of a prompt would be in the step."""
        table, windows = self.worker.table, self.worker.windows
        start = int(table.num_sent[slot])
        if windows and self.window_room(slot) <= start:
            self.busy.add(slot)
            return
        end = start + self.take_chunk(slot)
        for number, window in enumerate(windows):
            self.num_taken[number] += window.num_lacking(slot, end)
        self.num_prompts += 1
        if end == int(table.target[slot]):
            self.prefilling.remove(slot)

    def num_available_of(self, window: WindowBlocks) -> int:
        """Blocks of a group that nobody holds, nor will."""
        return super().num_available_of(window) - self.num_taken[window.number - SPINE - 1]


def _of_leader(dry: DryStep, wait: PrefixWait | None) -> str:
    assert wait is not None
    if not wait.is_state:
        return f"request {wait.leader_id} computes the first {wait.end} tokens, which both of them begin with"
    sentence = (
        f"request {wait.leader_id} computes the state behind the first {wait.end} tokens, which both of them "
        "begin with, and is to keep it"
    )
    kept = dry.worker.checkpoints
    if kept is None or kept.pool.num_available or wait.end in kept.ordered.get(wait.slot, ()):
        return sentence
    return f"{sentence}, if one of the {kept.pool.num_blocks} checkpoints of {dry.name} is not in use then"


def _of_copies(dry: DryStep, request: Request) -> str:
    fence = request.history.fence or find_fence(dry.worker, dry.prefix)
    assert fence is not None
    if isinstance(fence, Fence) and fence.pull is not None:
        count, source = sum(map(len, fence.pull.written)), fence.pull.source.info.worker_id
        return f"{count} cached blocks are being read from worker {source}"
    if fence.loads:
        return f"{len(fence.loads)} blocks are being loaded from the disk tier of {dry.name}"
    return f"{len(fence.copies)} blocks are being copied between {dry.name} and its host tier"


def _of_fetch(dry: DryStep, request: Request) -> str:
    assert dry.fetch is not None
    return dry.fetch.source.explain(dry.fetch.plan)


def _of_place(dry: DryStep, request: Request) -> str:
    most, (reserved, _) = dry.worker.limits.max_num_seqs, reserved_for_others(dry.worker, request)
    kept = f", {reserved} of them by requests that wait for copies" if reserved else ""
    return f"all {most} places of {dry.name} are taken (max_num_seqs {most}){kept}"


def _of_tokens(dry: DryStep, request: Request) -> str:
    limit = f"max_num_batched_tokens {dry.worker.limits.max_num_batched_tokens}"
    if dry.is_cut:
        most = dry.config.lower_class_prefill_tokens
        limit = f"lower_class_prefill_tokens {most}, for a higher class is about"
    rows = f"{dry.num_decode} tokens for rows that decode, the rest for {dry.num_prompts} prompts"
    return f"the next step of {dry.name} is full ({limit}): {rows}"


def _of_blocks(dry: DryStep, request: Request) -> str:
    group = max(range(len(dry.needs)), key=lambda number: dry.needs[number].lacking)
    needed, headroom, num_free = dry.needs[group]
    spare = f" and {headroom} to spare for those that run" if headroom else ""
    free = f"{num_free} of {dry.worker.pools[group].num_blocks} are free"
    return f"it needs {max(needed, 0)} more blocks{of_layers(dry.worker, group)}{spare} on {dry.name}; {free}"


def of_layers(worker: Worker, group: int) -> str:
    """Which layers the blocks of a group are for, where others have blocks of their own."""
    if group == SPINE:
        return " of the whole sequence" if worker.windows else ""
    return f" for layers with {worker.windows[group - SPINE - 1].group.words}"


WORDS: dict[gates.Gate, tuple[Reason, Callable[[DryStep, Request], str]]] = {
    gates.SLOT: (
        Reason.NO_SLOT,
        lambda dry, _: f"all {dry.worker.table.num_slots} slots of {dry.name} are taken (num_slots)",
    ),
    gates.PREFIX: (Reason.PREFIX, lambda dry, request: _of_leader(dry, request.history.prefix_wait)),
    gates.COPIES: (Reason.HOST_COPIES, _of_copies),
    gates.GRAMMAR_TURN: (
        Reason.GRAMMAR_TURN,
        lambda dry, _: (
            f"{dry.worker.num_preparing} requests wait on {dry.name} for their grammars, as many as may: "
            f"half of its {dry.worker.table.num_slots} slots"
        ),
    ),
    gates.PLACE: (Reason.NO_PLACE, _of_place),
    gates.TOKENS: (Reason.TOKEN_BUDGET, _of_tokens),
    gates.PARTIAL_PROMPTS: (
        Reason.TOKEN_BUDGET,
        lambda dry, request: (
            f"{dry.num_partial(request)} prompts are partly computed on {dry.name} "
            f"(max_num_partial_prefills {dry.config.max_num_partial_prefills})"
        ),
    ),
    gates.SHORTAGE: (
        Reason.NO_BLOCKS,
        lambda dry, _: (
            f"blocks are short on {dry.name}: {len(dry.worker.table.held)} running requests wait for one, "
            "and go first"
        ),
    ),
    gates.REPORTS: (Reason.NEXT_STEP, lambda dry, _: "it goes on when the steps that ran it have reported"),
    gates.LEADER: (
        Reason.PREFIX,
        lambda dry, request: _of_leader(dry, find_leader(dry.worker, request, dry.prefix)),
    ),
    gates.SHARED_COPIES: (Reason.HOST_COPIES, _of_copies),
    gates.WHOLE_PROMPT: (
        Reason.TOKEN_BUDGET,
        lambda dry, request: (
            f"its {num_known(dry.worker, request)} tokens are computed in one step "
            f"(enable_chunked_prefill is off), and {dry.num_left} are left in the next step of {dry.name}"
        ),
    ),
    gates.BLOCKS: (Reason.NO_BLOCKS, _of_blocks),
    gates.FETCH: (Reason.HOST_COPIES, _of_fetch),
}
"""Every gate in words: what is there, and the limit with its value."""
