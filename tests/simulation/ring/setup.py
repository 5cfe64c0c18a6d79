"""How large a ring is, how its processes are set, and what its clients ask."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from signalbox.protocol.block_groups import BlockGroup, StateGroup
from signalbox.protocol.enums import ModelTask
from signalbox.protocol.model_identity import ModelIdentity
from tests.simulation.ring.request import RingRequest
from worker_svc.core.batch import RunnerInfo

MODEL = "sim"


@dataclass(frozen=True)
class RingSetup:
    """Sizes and settings; times in seconds."""

    num_workers: int = 2
    num_frontends: int = 1
    num_schedulers: int = 1
    with_relay: bool = False
    """The workers reach the scheduler through a relay."""
    num_blocks: int = 24
    block_size: int = 4
    num_slots: int = 8
    max_model_len: int = 64
    vocab_size: int = 1000
    max_draft_tokens: int = 0
    acceptance: float = 0.6
    num_host_blocks: int = 0
    groups: tuple[BlockGroup, ...] = ()
    """Groups of blocks beside the spine."""
    state_group: StateGroup | None = None
    """Checkpoints of recurrent states; None: the model has none of either."""
    runs_ahead: bool = False
    num_lanes: int = 1
    has_beats: bool = True
    """Workers say to each other that they are there (HO19); those of earlier releases do not."""
    identities: tuple[ModelIdentity, ...] = ()
    """The workers' in turn; a worker that starts again has the next one. Empty: they say none."""
    step_s: tuple[float, float] = (0.002, 0.03)
    """Shortest and longest step."""
    compile_s: float = 0.1
    """Longest time that a grammar takes."""
    mask_s: float = 0.0
    """Longest time that masks take; 0: each is there when it is wanted."""
    grammar_failures: float = 0.0
    """Share of grammars that cannot be compiled."""
    copy_s: float = 0.05
    """Longest time that copies beside the steps take."""
    move_s: float = 0.0
    """Longest time that a piece of what is handed over takes to be read, and to be written."""
    copy_failures: float = 0.0
    """Share of groups of such copies that fail."""
    guardians: float = 1.0
    """Share of crashes that are reported by a guardian."""
    restart_s: tuple[float, float] = (0.05, 1.0)
    """How long whoever runs a process takes to start it again."""
    has_lease: bool = False
    """The schedulers share a lease; without one they do not know of each other."""
    lease_runs_out: bool = False
    """The lease is in a store behind a network, and runs out; else it is let go with the process that held it."""
    tenants: str = ""
    """Limits of tenants, as in their file; empty: there are none."""
    part_bytes: int = 0
    """Messages are parted that are longer, and snapshots read slot by slot; 0: those of megabytes, and of 128."""
    scheduler: dict[str, Any] = field(default_factory=dict)
    """Settings of the schedulers, beside those of every ring."""
    worker: dict[str, Any] = field(default_factory=dict)
    """Settings of the workers."""
    frontend: dict[str, Any] = field(default_factory=dict)
    """Settings of the frontends."""

    @property
    def limit(self) -> int:
        """Tokens that a sequence may have."""
        return min(self.max_model_len, self.num_blocks * self.block_size + 1)

    @property
    def info(self) -> RunnerInfo:
        """Of the simulated model."""
        return RunnerInfo(
            MODEL,
            self.num_blocks,
            self.block_size,
            self.max_model_len,
            self.vocab_size,
            (),
            self.max_draft_tokens,
            num_host_blocks=self.num_host_blocks,
            tasks=(ModelTask.GENERATE, ModelTask.EMBED),
            has_prompt_logprobs=True,
            embedding_size=1,
            groups=self.groups,
            num_state_versions=1 + self.num_lanes + (self.max_draft_tokens > 0)
            if self.state_group is not None
            else 0,
            state_group=self.state_group,
            num_lanes=self.num_lanes,
        )

    @property
    def schedulers(self) -> list[str]:
        """Addresses."""
        return [f"s{number}:7300" for number in range(self.num_schedulers)]


@dataclass(frozen=True)
class Planned:
    """A request of a client and when it comes."""

    at: float
    frontend: int
    request: RingRequest


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong, from `at` on for `lasts_s`."""

    at: float
    kind: str
    """Name of a method of `faults.Faults`."""
    targets: tuple[str, ...] = ()
    lasts_s: float = 0.0
    size: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(self.targets)}) at {self.at:.3f} for {self.lasts_s:.3f} s, {self.size:.2f}"


@dataclass(frozen=True)
class Plot:
    """All that is planned of a run."""

    seed: str
    setup: RingSetup
    requests: tuple[Planned, ...]
    faults: tuple[Fault, ...] = ()
    check_every: int = 29
    """Rules are checked behind every so many events; 0: never."""
    warm_up_s: float = 0.8
    most_gap_s: float = 0.0
    """Longest time for which a stream may stand still; 0: any."""
    loses_nothing: bool = False
    """No attempt may be lost, whatever its faults are."""
    ends_early: bool = False
    """Faults end when no client waits any more; else when their time has come."""


@dataclass(frozen=True)
class Loss:
    """An attempt that its frontend was told to have lost."""

    request_id: str
    cause: str
    was_running: bool
    """A worker had made tokens of it, in its first attempt."""
    reason: str
