"""A request as the scheduler knows it: identity, counts and policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from scheduler_svc.core.state.requests.affinity import Affinity
from scheduler_svc.core.state.requests.entry import QueueEntry
from scheduler_svc.core.state.requests.handoff import AnyHandoff
from scheduler_svc.core.state.requests.slot_history import SlotHistory

OVERHEAD_BYTES = 2048
"""What a waiting request takes besides what it carries, about."""


class RequestStatus(Enum):
    """Where a request stands. `TRANSITIONS` says what may follow what; the comment names who causes it."""

    WAITING = "waiting"
    WAITING_FOR_FSM = "waiting_for_fsm"
    WAITING_FOR_REMOTE_KVS = "waiting_for_remote_kvs"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED_STOPPED = "finished_stopped"
    FINISHED_LENGTH_CAPPED = "finished_length_capped"
    FINISHED_ABORTED = "finished_aborted"
    FINISHED_IGNORED = "finished_ignored"
    FINISHED_ERROR = "finished_error"

    @property
    def is_finished(self) -> bool:
        """Whether nothing follows this status."""
        return not TRANSITIONS[self]


_S = RequestStatus
_ENDS = {_S.FINISHED_STOPPED, _S.FINISHED_LENGTH_CAPPED, _S.FINISHED_ABORTED, _S.FINISHED_ERROR}
TRANSITIONS: dict[RequestStatus, frozenset[RequestStatus]] = {
    # Scheduler: placed; refused at submit (IGNORED). Frontend: cancelled.
    _S.WAITING: frozenset({_S.WAITING_FOR_FSM, _S.RUNNING, _S.FINISHED_IGNORED, *_ENDS}),
    # Worker: its grammar is ready, and there is room; or it failed. Frontend: cancelled.
    _S.WAITING_FOR_FSM: frozenset({_S.RUNNING, _S.WAITING_FOR_REMOTE_KVS, *_ENDS}),
    # It is frozen, and goes on where it was, as it was, or on another worker.
    _S.WAITING_FOR_REMOTE_KVS: frozenset({_S.WAITING_FOR_FSM, _S.RUNNING, _S.PREEMPTED, *_ENDS}),
    # Scheduler: out of blocks; frozen. Worker: finished. Frontend: cancelled, stop string found.
    _S.RUNNING: frozenset({_S.PREEMPTED, _S.WAITING_FOR_REMOTE_KVS, *_ENDS}),
    # Scheduler: resumed; frozen. Worker: had ended before. Frontend: cancelled.
    _S.PREEMPTED: frozenset({_S.RUNNING, _S.WAITING_FOR_REMOTE_KVS, *_ENDS}),
    **{end: frozenset() for end in (*_ENDS, _S.FINISHED_IGNORED)},
}


class RequestKey(NamedTuple):
    """Names a request whatever the attempt: ids are unique within a frontend instance."""

    frontend_instance: str
    request_id: str


@dataclass(frozen=True, slots=True)
class BlockNames:
    """Names of the full blocks of the known tokens, on workers of one identity."""

    identity: bytes
    """Its key; empty: workers that do not say theirs."""
    root: bytes
    """Root of the chain."""
    hashes: bytes
    """16 bytes each."""


@dataclass(slots=True)
class Request:
    """One attempt of one request."""

    key: RequestKey
    attempt: int
    model: str
    num_prompt_tokens: int
    num_prior_output_tokens: int
    max_tokens: int
    """Most output tokens in all, prior ones included."""
    arrival_ms: int
    sequence: int
    """Order of submission to this scheduler; breaks ties of arrival."""
    block_hashes: bytes = b""
    """Chained hashes of the full blocks of the known tokens, 16 bytes each."""
    root_hash: bytes = b""
    hash_block_size: int = 0
    identity: bytes = b""
    """Key of the identity of workers that these names are for."""
    other_names: tuple[BlockNames, ...] = ()
    """Names of these blocks on workers of other identities."""
    output_identity: bytes = b""
    """Key of the identity that made the last of the prior output; empty: there is none, or nobody knows."""
    priority: int = 0
    tenant: str = ""
    wants_prompt_logprobs: bool = False
    is_pooling: bool = False
    num_crashes: int = 0
    """Crashes since its last new token that it may have caused; above 0 it is a suspect, and runs alone."""
    has_grammar: bool = False
    """Its worker compiles a grammar before it can start."""
    meta: bytes = b""
    """The serialized RequestMeta, echoed by the worker in snapshots."""
    payload: bytes = b""
    """Tokens and sampling parameters: carried unread, dropped once sent."""
    traceparent: str = ""
    tracestate: str = ""
    num_losses: int = 0
    """Earlier attempts that were lost; 0: this is the first. Others were accepted once."""
    status: RequestStatus = RequestStatus.WAITING
    slot: int | None = None
    worker_id: str | None = None
    client_paused: bool = False
    suspended: bool = False
    """Safe mode: its class may not run now. It neither starts nor ages."""
    in_doubt: bool = False
    """Its frontend has met another process in its worker's place: should it end there after all, nobody hears of it."""
    leg: int = 0
    """How often the right to run the attempt was given before its worker had it (HO2)."""
    newest_leg: int = 0
    """The highest that was given; above `leg`: another worker was to have it, or is."""
    handoff: AnyHandoff | None = field(default=None, repr=False, compare=False)
    """Under way to another worker; None: it is not."""
    thawed_status: RequestStatus | None = field(default=None, repr=False)
    """It is frozen: what it goes on as."""
    entry: QueueEntry = field(default_factory=QueueEntry, repr=False, compare=False)
    """The queues' record of it."""
    affinity: Affinity = field(default_factory=Affinity, repr=False, compare=False)
    """What placement keeps of it."""
    history: SlotHistory = field(default_factory=SlotHistory, repr=False, compare=False)
    """What its worker keeps of it besides the columns."""

    @property
    def arrival(self) -> tuple[int, int]:
        """Who came first."""
        return (self.arrival_ms, self.sequence)

    @property
    def order(self) -> tuple[int, int, int]:
        """Who goes first, and whose blocks are taken last: by class, then first come first served."""
        return (self.entry.effective_priority, self.arrival_ms, self.sequence)

    @property
    def rests(self) -> bool:
        """It is not to run now: its client does not read, its class is suspended, or it is frozen."""
        return self.client_paused or self.suspended or self.is_frozen

    @property
    def is_frozen(self) -> bool:
        """Another worker takes it over, and nothing of it changes meanwhile."""
        return self.thawed_status is not None

    @property
    def num_bytes(self) -> int:
        """What it takes while it waits."""
        names = len(self.block_hashes) + sum(len(names.hashes) for names in self.other_names)
        return len(self.meta) + names + len(self.payload) + OVERHEAD_BYTES

    def names_on(self, identity: bytes, block_size: int) -> BlockNames:
        """What a worker of that identity and size of blocks calls its blocks; empty: it has no names for them."""
        if self.hash_block_size == block_size:
            if self.identity == identity:
                return BlockNames(identity, self.root_hash, self.block_hashes)
            for names in self.other_names:
                if names.identity == identity:
                    return names
        return BlockNames(identity, b"", b"")

    @property
    def needs_every_position(self) -> bool:
        """No cached block can serve it: what is asked for comes out of computing each position."""
        return self.wants_prompt_logprobs or self.is_pooling

    @property
    def num_known_tokens(self) -> int:
        """Tokens that exist at placement: the prompt and the output of earlier attempts."""
        return self.num_prompt_tokens + self.num_prior_output_tokens

    def freeze(self) -> None:
        """Nothing of it changes from now on."""
        before = self.status
        self.move(RequestStatus.WAITING_FOR_REMOTE_KVS)
        self.thawed_status = before

    def thaw(self) -> None:
        """It goes on as it was."""
        if self.thawed_status is not None:
            self.move(self.thawed_status)
            self.thawed_status = None

    def move(self, status: RequestStatus) -> None:
        """Changes the status; an illegal change is a bug of ours."""
        assert status in TRANSITIONS[self.status], f"{self.key}: {self.status} -> {status}"
        self.status = status
