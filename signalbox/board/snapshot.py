"""The board: what people look at, as plain values for a page and a terminal. Words and units as in admin.proto."""

from __future__ import annotations

from dataclasses import dataclass, field

from signalbox.cli.safe_mode import SafeMode


@dataclass(frozen=True)
class Queue:
    """What waits of one class and tenant."""

    priority: int
    tenant: str
    num_waiting: int
    oldest_ms: int


@dataclass(frozen=True)
class Group:
    """Blocks of layers that look back so far and no farther, beside those of the whole sequence."""

    kind: str
    """window or chunk."""
    reach: int
    """How far they look back, in positions."""
    num_blocks: int
    num_free_blocks: int
    num_cached_blocks: int
    num_host_blocks: int = 0
    num_used_host_blocks: int = 0

    @property
    def name(self) -> str:
        """What tells it from the other groups of its worker."""
        return f"{self.kind} of {self.reach:,}"

    @property
    def num_held_blocks(self) -> int:
        """How many blocks requests hold."""
        return self.num_blocks - self.num_free_blocks - self.num_cached_blocks


@dataclass(frozen=True)
class Checkpoints:
    """Kept copies of recurrent states; counters are since the worker attached."""

    boundary: int
    """Positions from one to the next."""
    num_checkpoints: int
    num_free_checkpoints: int
    num_cached_checkpoints: int
    num_made: int
    num_used: int
    """Starts that went on from one."""
    num_evicted: int
    num_host_checkpoints: int = 0
    num_used_host_checkpoints: int = 0

    @property
    def name(self) -> str:
        """What they are, as groups have it."""
        return f"states at each {self.boundary:,}"

    @property
    def num_held_checkpoints(self) -> int:
        """How many are being written, or gone on from."""
        return self.num_checkpoints - self.num_free_checkpoints - self.num_cached_checkpoints


@dataclass(frozen=True)
class Disk:
    """The third tier of a worker; counters are since it attached."""

    num_blocks: int
    """What it could load, of all groups."""
    is_off: bool
    """It failed, and is left alone for a while."""
    num_hit_tokens: int
    num_loaded_blocks: int
    num_lost_blocks: int
    """Ordered, and not there any more, damaged, or too slow."""
    num_stored_blocks: int


@dataclass(frozen=True)
class Worker:
    """One worker; counters are since it attached."""

    worker_id: str
    model: str
    attached: bool
    draining: bool
    num_running: int
    num_preempted: int
    num_inflight_steps: int
    num_blocks: int
    num_free_blocks: int
    num_cached_blocks: int
    num_host_blocks: int
    num_used_host_blocks: int
    cells: bytes
    """Levels from 0 to 15 per cell of the block map: held in the high four bits, cached in the low ones."""
    blocks_per_cell: int
    num_steps: int
    num_preemptions: int
    num_output_tokens: int
    num_prefill_tokens: int
    num_prefix_query_tokens: int
    num_prefix_hit_tokens: int
    step_us: int
    """Microseconds that the steps reported since the last snapshot took, together."""
    model_us: int
    health: str = "good"
    """good, silent, hung, slow or away: all but good ones get nothing new."""
    num_unheard_by: int = 0
    """Frontends that do not hear it."""
    groups: tuple[Group, ...] = ()
    checkpoints: Checkpoints | None = None
    """None: it keeps none."""
    role: str = "both"
    """both, prefill or decode."""
    num_ranks: int = 1
    """Processes among which its model is divided."""
    disk: Disk | None = None
    """None: it has none."""

    @property
    def trouble(self) -> str:
        """One word for what is wrong with the worker; empty: nothing."""
        if not self.attached:
            return "lost"
        if self.health != "good":
            return self.health
        return "unreachable" if self.num_unheard_by else ""

    @property
    def num_held_blocks(self) -> int:
        """How many blocks requests hold."""
        return self.num_blocks - self.num_free_blocks - self.num_cached_blocks


@dataclass(frozen=True)
class Request:
    """One request that a worker has."""

    request_id: str
    worker_id: str
    slot: int
    phase: str
    """preparing, prefill, decode, preempted, held, paused, displaced or suspended."""
    priority: int
    tenant: str
    num_prompt_tokens: int
    num_computed_tokens: int
    num_output_tokens: int
    max_output_tokens: int
    num_cached_tokens: int
    num_blocks: int
    num_preemptions: int
    age_ms: int


@dataclass(frozen=True)
class Percentiles:
    """Percentiles of some durations in seconds; without samples there are none."""

    num_samples: int
    p50_ms: float
    p90_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Times:
    """Latencies as the scheduler sees them."""

    first_token: Percentiles
    inter_token: Percentiles


@dataclass(frozen=True)
class Board:
    """One snapshot of a scheduler: its workers, queues and requests."""

    scheduler_epoch: int
    at_ms: int
    num_waiting: int
    num_frontends: int
    queues: tuple[Queue, ...]
    workers: tuple[Worker, ...]
    requests: tuple[Request, ...]
    times: Times
    safe_mode: SafeMode = field(default_factory=SafeMode)
