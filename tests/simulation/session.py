"""What clients ask of a simulated ring, and how large it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from signalbox.protocol.block_groups import BlockGroup, StateGroup
from tests.simulation.disk import DiskSetup
from tests.simulation.penalties import continuation_without_repeats
from tests.simulation.vectors import expected_vector
from worker_svc.core.requests.pooling import PoolingMode
from worker_svc.runner.sim.model import continuation

MODEL = "sim"


@dataclass
class Session:
    """A client's request and what became of it."""

    request_id: str
    prompt: list[int]
    max_tokens: int
    stop_token_ids: list[int]
    pooling: PoolingMode | None = None
    """It asks for a vector, not for tokens."""
    has_grammar: bool = False
    never_repeats: bool = False
    """It asks for the sharpest of repetition penalties."""
    priority: int = 0
    tenant: str = ""
    stop_after: int | None = None
    """The frontend finds a stop string at this many output tokens."""
    attempt: int = 0
    output: list[int] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    """Terminal events; there must be exactly one."""
    num_attempts: int = 0
    paused: bool = False
    vector: float | None = None

    @property
    def is_done(self) -> bool:
        return bool(self.ends)

    def expected(self, vocab_size: int, limit: int) -> list[int]:
        """The output of an undisturbed run."""
        if self.pooling is not None:
            return []
        count = min(self.max_tokens, limit - len(self.prompt))
        continue_ = continuation_without_repeats if self.never_repeats else continuation
        output = continue_(self.prompt, count, vocab_size)
        ends = [i + 1 for i, token in enumerate(output) if token in self.stop_token_ids]
        return output[: ends[0]] if ends else output

    def expected_vector(self) -> float | None:
        """The vector of an undisturbed run; None: it asks for none."""
        return None if self.pooling is None else expected_vector(self.prompt, self.pooling)


@dataclass(frozen=True)
class Setup:
    """Sizes of the simulated ring."""

    num_workers: int
    num_blocks: int
    block_size: int
    num_slots: int
    max_model_len: int
    vocab_size: int
    max_draft_tokens: int
    acceptance: float
    num_host_blocks: int
    compile_s: float = 0.3
    """Longest time that a grammar takes."""
    grammar_failures: float = 0.0
    """Share of grammars that cannot be compiled."""
    runs_ahead: bool = False
    """The workers' devices compute beside their hosts."""
    copy_s: float = 0.05
    """Longest time that copies beside the steps take."""
    copy_failures: float = 0.0
    """Share of groups of such copies that fail."""
    groups: tuple[BlockGroup, ...] = ()
    """Groups of blocks beside the spine."""
    num_state_versions: int = 0
    """Of each slot's recurrent state; 0: the model has none."""
    disk: DiskSetup | None = None
    """A disk that the workers share; None: there is none."""
    state_group: StateGroup | None = None
    """Checkpoints of these states; None: there are none."""
    num_lanes: int = 1
    """Of each worker."""
