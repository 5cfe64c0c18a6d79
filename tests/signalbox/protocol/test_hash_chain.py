"""Block names: the same exactly when everything from the root on is the same."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from signalbox.protocol.hash_chain import HASH_BYTES, TOKEN_BYTES, block_hash, chain_hashes, root_hash

ROOT = root_hash("demo")
TOKENS = st.lists(st.integers(0, 50_000), max_size=40)


def encode(tokens: list[int]) -> bytes:
    return b"".join(token.to_bytes(TOKEN_BYTES, "little", signed=True) for token in tokens)


def names(tokens: list[int], block_size: int = 4, root: bytes = ROOT) -> list[bytes]:
    data = chain_hashes(root, encode(tokens), block_size)
    return [data[start : start + HASH_BYTES] for start in range(0, len(data), HASH_BYTES)]


def test_the_protocol_is_what_it_was() -> None:
    """C6: frontends and workers of two versions may share a cache: other bytes need another VERSION."""
    assert root_hash("demo", "adapter", "salt").hex() == "43f08d19cdd93daa97cc806c7b02dcda"
    assert names([1, 2, 3, 4])[0].hex() == "abc8a6da404643d1f98de11e0238faec"


@given(TOKENS, st.integers(1, 8))
def test_only_full_blocks_have_names(tokens: list[int], block_size: int) -> None:
    assert len(names(tokens, block_size)) == len(tokens) // block_size


@given(TOKENS, TOKENS)
def test_a_shared_beginning_is_shared_names(left: list[int], right: list[int]) -> None:
    equal = [one == other for one, other in zip(names(left), names(right), strict=False)]
    same = [left[: 4 * (i + 1)] == right[: 4 * (i + 1)] for i in range(len(equal))]
    assert equal == same


@given(TOKENS, st.integers(0, 10))
def test_a_chain_can_be_continued(tokens: list[int], split: int) -> None:
    """A worker goes on where the frontend ended."""
    head, tail = tokens[: 4 * split], tokens[4 * split :]
    first = names(head)
    assert first + names(tail, root=first[-1] if first else ROOT) == names(tokens)


def test_one_block_is_one_link() -> None:
    assert names([1, 2, 3, 4, 5, 6, 7, 8])[1] == block_hash(names([1, 2, 3, 4])[0], encode([5, 6, 7, 8]))


def test_a_buffer_of_int32_is_enough() -> None:
    tokens = array("i", [1, 2, 3, 4])
    assert chain_hashes(ROOT, memoryview(tokens).cast("B").tobytes(), 4) == names([1, 2, 3, 4])[0]


def test_model_adapter_salt_and_tenant_separate() -> None:
    """C6."""
    roots = [root_hash("a"), root_hash("b"), root_hash("a", "b"), root_hash("a", "", "b"), root_hash("ab")]
    roots += [root_hash("a", tenant="b"), root_hash("a", "", "b", "b"), root_hash("a", "", "\1\0\0\0b")]
    assert len(set(roots)) == len(roots)
    assert {len(root) for root in roots} == {HASH_BYTES}
