"""The hash chain that names the content of KV blocks.

Part of the protocol: frontends hash the full blocks of prompts, workers go on with the blocks of the output, and the
scheduler compares the names without ever seeing a token. Two blocks have the same name exactly when every token from
the start of their sequences to the end of the blocks is the same, and model, identity, adapter and salt are too.
"""

from __future__ import annotations

from hashlib import blake2b

HASH_BYTES = 16
VERSION = b"signalbox-1"
TOKEN_BYTES = 4
"""Tokens are hashed as little-endian int32."""


def root_hash(
    model: str, adapter: str = "", salt: str = "", tenant: str = "", identity: bytes = b""
) -> bytes:
    """The parent of a sequence's first block. No salt makes the root of one tenant that of another, or of none.

    `identity`: the key of a `ModelIdentity`; empty: that of workers that do not say theirs."""
    parts = [VERSION, model.encode(), adapter.encode(), salt.encode()]
    if tenant or identity:
        parts.append(tenant.encode())
    if identity:
        parts.append(identity)
    framed = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    return blake2b(framed, digest_size=HASH_BYTES).digest()


def block_hash(parent: bytes, tokens: bytes | memoryview) -> bytes:
    """Name of one full block: `tokens` are its token ids, int32 little endian."""
    digest = blake2b(parent, digest_size=HASH_BYTES)
    digest.update(tokens)
    return digest.digest()


def chain_hashes(root: bytes, token_ids: bytes, block_size: int) -> bytes:
    """Names of all full blocks of `token_ids` (int32 little endian), one behind the other."""
    size = block_size * TOKEN_BYTES
    view = memoryview(token_ids)
    hashes, parent = [], root
    for start in range(0, len(view) - size + 1, size):
        parent = block_hash(parent, view[start : start + size])
        hashes.append(parent)
    return b"".join(hashes)


def split_hashes(raw: bytes) -> list[bytes]:
    """The hashes that stand one behind the other. ValueError when one is cut short."""
    if len(raw) % HASH_BYTES:
        raise ValueError(f"a hash of {HASH_BYTES} bytes is cut short")
    return [raw[at : at + HASH_BYTES] for at in range(0, len(raw), HASH_BYTES)]
