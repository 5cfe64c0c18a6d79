"""A worker by its own word, and what it could run at all."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_svc.core.state.requests.request import Request
from signalbox.protocol.block_groups import BlockGroup, StateGroup
from signalbox.protocol.enums import WorkerRole
from signalbox.protocol.model_identity import UNSAID, ModelIdentity
from signalbox.protocol.step_limits import STEP_TIMEOUT_S

NAMELESS = b"reuses none"


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker said of itself when it attached."""

    worker_id: str
    instance: str
    address: str
    model: str
    num_slots: int
    num_blocks: int
    block_size: int
    max_model_len: int
    max_num_batched_tokens: int
    max_draft_tokens: int = 0
    num_host_blocks: int = 0
    serves_generation: bool = True
    serves_pooling: bool = False
    identity: ModelIdentity = UNSAID
    """What its results depend on: workers of one model that differ in it share no blocks (I7)."""

    reuses_blocks: bool = True
    """Whether requests go on from cached blocks; not so where blocks do not hold all of a request's state (SG7)."""

    groups: tuple[BlockGroup, ...] = ()
    """Groups of blocks beside the spine, whose blocks are `num_blocks`; in order, the first is group 1."""

    state_group: StateGroup | None = None
    """Checkpoints of recurrent states; None: there are none."""

    kv_layout: str = ""
    """Digest of how a block is laid out: workers of one identity that say the same may hand requests over to each
    other; empty: this one hands nothing over (HO1)."""

    role: WorkerRole = WorkerRole.BOTH
    """What it is there for, by its own setting (PD1)."""

    num_ranks: int = 1
    """Processes among which its model is divided (RK); nothing here depends on it."""

    num_lanes: int = 1
    """Lanes of its decode rows: a step is the turn of one (LA)."""

    step_timeout_s: float = STEP_TIMEOUT_S
    """The longest that any of its steps may take (U6)."""

    pulls_blocks: bool = False
    """Whether it reads cached blocks from other workers, and shows them its own (PB1)."""

    @property
    def names_key(self) -> bytes:
        """Key of the names that requests' blocks have here; no request has names by the one of a worker that reuses
        none."""
        return self.identity.key if self.reuses_blocks else NAMELESS

    @property
    def max_request_tokens(self) -> int:
        """Longest prompt plus output: the last token needs no KV, so one more than the cache has positions."""
        return min(self.max_model_len, self.num_blocks * self.block_size + 1)

    @property
    def max_blocks_per_request(self) -> int:
        """Blocks of the longest block table."""
        return -(-self.max_request_tokens // self.block_size)

    def serves(self, request: Request) -> bool:
        """Requests of this kind run here."""
        return self.serves_pooling if request.is_pooling else self.serves_generation

    def limit_of(self, request: Request) -> int:
        """Most tokens that prompt and output of `request` can have here together, whatever our settings: a request that
        was placed under others is limited only by what the worker can do. A pooling request has no output."""
        if request.is_pooling:
            return request.num_prompt_tokens
        return min(request.num_prompt_tokens + request.max_tokens, self.max_request_tokens)
