"""What the results of a worker depend on besides its input: which weights it has, kept in what form, and by which
kernels it computes. Blocks of the KV cache of two identities are never the same blocks (design.md, I7)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

KEY_BYTES = 16
MAX_PART_BYTES = 256
"""Most bytes of each of the three."""


@dataclass(frozen=True)
class ModelIdentity:
    """Told by a worker in its hello. Empty texts: it does not say."""

    weights: str = ""
    """Digest of the checkpoint, in hexadecimal."""
    form: str = ""
    """What linear layers and cache are kept in: `bfloat16, 168 int4/32`."""
    number_class: str = ""
    """Which kernels compute: workers of one class have the same bits for the same step."""

    @cached_property
    def key(self) -> bytes:
        """16 bytes that stand for it in hash roots and messages; empty: nothing is said."""
        if not (self.weights or self.form or self.number_class):
            return b""
        parts = [part.encode() for part in (self.weights, self.form, self.number_class)]
        framed = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
        return blake2b(framed, digest_size=KEY_BYTES).digest()

    def __str__(self) -> str:
        if not self.key:
            return "an identity that is not said"
        return f"weights {self.weights[:12] or '?'} ({self.form or '?'}; {self.number_class or '?'})"


UNSAID = ModelIdentity()
