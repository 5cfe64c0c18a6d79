"""A request of the clients in simulated time."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from hashlib import blake2b

from signalbox.protocol.hash_chain import HASH_BYTES

SIBLINGS = 4
"""Conversations that one task is given to."""


@dataclass
class Turn:
    """One request of a conversation; a later turn's prompt contains all that was said before."""

    conversation: int
    number: int
    num_prompt: int
    num_output: int
    shared: int
    """Leading prompt tokens that all conversations share."""
    forked: int = 0
    """Tokens behind those that its siblings share."""
    first_sibling: int = 0
    """The first of the conversations that share these."""
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
    """Name of a block: the same for all of a stream in the shared part, for siblings in the forked one, and a
    conversation's own behind it."""
    end = (index + 1) * block_size
    owner = str(turn.conversation)
    if end <= turn.shared:
        owner = f"all {turn.stream}"
    elif end <= turn.shared + turn.forked:
        owner = f"siblings of {turn.first_sibling}"
    name = f"{owner}/{index}"
    return blake2b(name.encode(), digest_size=HASH_BYTES).digest()
