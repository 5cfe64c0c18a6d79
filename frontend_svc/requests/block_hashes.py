"""Names of the full blocks of a request's known tokens, kept so that a new attempt hashes only new ones."""

from __future__ import annotations

import copy

from signalbox.protocol.hash_chain import HASH_BYTES, TOKEN_BYTES, chain_hashes, root_hash


class BlockHashes:
    """The hash chain of one sequence of tokens."""

    def __init__(self, model: str, cache_salt: str, block_size: int, tenant: str = "") -> None:
        self.root = root_hash(model, salt=cache_salt, tenant=tenant)
        self.block_size = block_size
        self._hashes = b""

    @property
    def num_bytes(self) -> int:
        """Size of all names that are known."""
        return len(self._hashes)

    def copy(self) -> BlockHashes:
        """A copy of these names, for another request over the same tokens."""
        return copy.copy(self)

    def extend(self, token_ids: bytes) -> bytes:
        """Names of all full blocks of `token_ids`, 16 bytes each, one behind the other.

        `token_ids` are int32, little endian, and begin with those of earlier calls.
        """
        num_known = len(self._hashes) // HASH_BYTES
        parent = self._hashes[-HASH_BYTES:] or self.root
        rest = token_ids[num_known * self.block_size * TOKEN_BYTES :]
        self._hashes += chain_hashes(parent, rest, self.block_size)
        return self._hashes
