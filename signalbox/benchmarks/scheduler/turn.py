"""A request of the clients in simulated time."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from hashlib import blake2b

from signalbox.protocol.hash_chain import HASH_BYTES


@dataclass
class Turn:
    """One request of a conversation; a later turn's prompt contains all that was said before."""

    conversation: int
    number: int
    num_prompt: int
    num_output: int
    shared: int
    """Leading prompt tokens that all conversations share."""
    tenant: str = ""
    priority: int = 0
    arrived: float = 0.0
    first_token: float = 0.0
    prefilled: int = 0
    """Prompt and output tokens computed by prefill, each time again."""
    computed: int = 0
    """Tokens of them that were computed for the first time."""
    stream: str = ""
    """Which of the workload's streams it is of."""
    last_token: float = 0.0
    """When its newest token came; 0: it has none."""
    gaps: array[float] = field(default_factory=lambda: array("f"))
    """Times between its tokens, in seconds."""

    @property
    def name(self) -> str:
        """Its request id."""
        return f"{self.conversation}.{self.number}"

    def take_token(self, now: float) -> None:
        """A token of it has come."""
        if self.last_token:
            self.gaps.append(now - self.last_token)
        self.last_token = now


def content_hash(turn: Turn, index: int, block_size: int) -> bytes:
    """Name of a block: the same for all in the shared part, a conversation's own behind it."""
    shared = (index + 1) * block_size <= turn.shared
    name = f"{'all' if shared else turn.conversation}/{index}"
    return blake2b(name.encode(), digest_size=HASH_BYTES).digest()
