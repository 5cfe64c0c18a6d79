"""Names of the full blocks of a request's known tokens, kept so that a new attempt hashes only new ones."""

from __future__ import annotations

from collections.abc import Sequence

from signalbox.protocol.hash_chain import HASH_BYTES, TOKEN_BYTES, chain_hashes, root_hash


class BlockHashes:
    """The hash chains of one sequence of tokens: one for each identity of the model, as blocks of two identities are
    never the same."""

    def __init__(
        self,
        model: str,
        cache_salt: str,
        block_size: int,
        tenant: str = "",
        identities: Sequence[bytes] = (b"",),
    ) -> None:
        """`identities`: at least one, by their keys."""
        self.block_size = block_size
        self.roots = {
            key: root_hash(model, salt=cache_salt, tenant=tenant, identity=key) for key in identities
        }
        """The root of each chain, by the key of its identity."""
        self._hashes = dict.fromkeys(self.roots, b"")

    @property
    def num_bytes(self) -> int:
        """Size of all names that are known."""
        return sum(map(len, self._hashes.values()))

    def copy(self) -> BlockHashes:
        """A copy of these names, for another request over the same tokens."""
        copy = BlockHashes.__new__(BlockHashes)
        copy.block_size, copy.roots, copy._hashes = self.block_size, self.roots, dict(self._hashes)
        return copy

    def extend(self, token_ids: bytes) -> dict[bytes, bytes]:
        """Names of all full blocks of `token_ids`, 16 bytes each, one behind the other; by identity.

        `token_ids` are int32, little endian, and begin with those of earlier calls.
        """
        for key, known in self._hashes.items():
            parent = known[-HASH_BYTES:] or self.roots[key]
            rest = token_ids[len(known) // HASH_BYTES * self.block_size * TOKEN_BYTES :]
            self._hashes[key] = known + chain_hashes(parent, rest, self.block_size)
        return self._hashes
