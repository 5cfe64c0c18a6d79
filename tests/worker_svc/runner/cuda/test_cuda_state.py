"""The device's state of the slots: after any steps it holds what the rows need, and only changes are sent."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from signalbox.protocol.block_groups import BlockGroup
from signalbox.protocol.enums import BlockGroupKind
from worker_svc.runner.cuda.buckets import LARGEST_BUCKET, bucket_for, bucket_sizes
from worker_svc.runner.cuda.state import DecodeRows, DecodeState, StateMirror
from worker_svc.runner.cuda.transfers import upload

NUM_SLOTS, MAX_BLOCKS, BLOCK_SIZE, SCRATCH = 6, 8, 4, 99
WINDOW, CHUNK = BlockGroup(BlockGroupKind.WINDOW, 6, 40), BlockGroup(BlockGroupKind.CHUNK, 8, 30)
CPU = torch.device("cpu")


class Pair:
    """Mirror and state, kept together as the runner does."""

    def __init__(self, *groups: BlockGroup) -> None:
        self.groups = groups
        self.mirror = StateMirror(NUM_SLOTS, MAX_BLOCKS, SCRATCH, groups)
        self.state = DecodeState(NUM_SLOTS, MAX_BLOCKS, self.mirror.scratch_blocks, CPU)

    def prepare(self, rows: DecodeRows) -> tuple[int, int]:
        """Sends what differs. Returns how many tokens and table entries that are."""
        update = self.mirror.update_for(rows, BLOCK_SIZE)
        self.state.apply(update)
        return len(update.slots), len(update.cells)

    def sample(self, slots: np.ndarray, positions: np.ndarray, tokens: list[int]) -> None:  # type: ignore[type-arg]
        """A step samples `tokens`, which the host does not see."""
        where = torch.from_numpy(slots.astype(np.int64))
        self.state.take(where, torch.from_numpy(positions), torch.tensor(tokens))
        self.mirror.launched(slots, positions)

    def assert_holds(self, rows: DecodeRows, tokens: list[int]) -> None:
        slots = torch.from_numpy(rows.slots.astype(np.int64))
        assert self.state.tokens[slots].tolist() == tokens
        assert self.state.positions[slots].tolist() == rows.positions.tolist()
        for number, tables in enumerate(rows.block_tables):
            for row, position in enumerate(rows.positions.tolist()):
                first = self.groups[number - 1].first_seen(position) if number else 0
                seen = slice(first // BLOCK_SIZE, position // BLOCK_SIZE + 1)
                held = self.state.block_tables[number, slots[row], seen].tolist()
                assert held == tables[row, seen].tolist()


def make_rows(
    slots: list[int],
    tokens: list[int],
    positions: list[int],
    tables: list[list[int]],
    in_flight: bool = False,
) -> DecodeRows:
    columns = (np.array(column, np.int32) for column in (slots, tokens, positions))
    return DecodeRows(*columns, [np.array(tables, np.int32)], in_flight=np.full(len(slots), in_flight))


def test_a_steady_decode_step_sends_nothing() -> None:
    pair = Pair()
    tables = [[5, 7, 0], [9, 2, 0]]
    first = make_rows([4, 1], [11, 12], [3, 4], tables)
    assert pair.prepare(first) == (2, 3)
    pair.assert_holds(first, [11, 12])
    pair.sample(first.slots, first.positions + np.int32(1), [21, 22])
    ahead = make_rows([4, 1], [0, 0], [4, 5], tables, in_flight=True)
    assert pair.prepare(ahead) == (0, 1), "one row enters a block that it had already"
    pair.assert_holds(ahead, [21, 22])
    pair.sample(ahead.slots, ahead.positions + np.int32(1), [31, 32])
    pair.mirror.collected(first.slots, first.positions + np.int32(1), np.array([21, 22], np.int32))
    pair.mirror.collected(ahead.slots, ahead.positions + np.int32(1), np.array([31, 32], np.int32))
    assert pair.prepare(make_rows([4, 1], [31, 32], [5, 6], tables)) == (0, 0)


def test_what_the_host_decided_otherwise_is_sent() -> None:
    pair = Pair()
    rows = make_rows([0, 2], [5, 6], [1, 2], [[1], [2]])
    pair.prepare(rows)
    pair.sample(rows.slots, rows.positions + np.int32(1), [7, 8])
    pair.mirror.collected(rows.slots, rows.positions + np.int32(1), np.array([7, 8], np.int32))
    other = make_rows([0, 2], [7, 40], [2, 3], [[1], [3]])
    assert pair.prepare(other) == (1, 1)
    pair.assert_holds(other, [7, 40])


def test_news_of_a_slot_that_has_moved_on_does_not_count() -> None:
    """The slot was given to a new request while the old one's last token was on its way."""
    pair = Pair()
    old = make_rows([3], [5], [1], [[1]])
    pair.prepare(old)
    pair.sample(old.slots, old.positions + np.int32(1), [7])
    new = make_rows([3], [50], [9], [[4, 5, 6]])
    pair.prepare(new)
    pair.mirror.collected(old.slots, old.positions + np.int32(1), np.array([7], np.int32))
    assert pair.prepare(new) == (0, 0)
    pair.assert_holds(new, [50])


def test_what_was_forgotten_is_sent_again() -> None:
    """Whatever of the update was lost on the way."""
    pair = Pair()
    rows = make_rows([4, 1], [11, 12], [3, 4], [[5, 7], [9, 2]])
    pair.mirror.update_for(rows, BLOCK_SIZE)
    pair.mirror.forget()
    assert pair.prepare(rows) == (2, 3)
    pair.assert_holds(rows, [11, 12])


def test_rows_whose_token_is_nowhere_are_refused() -> None:
    pair = Pair()
    rows = make_rows([3], [5], [1], [[1]])
    pair.prepare(rows)
    with pytest.raises(ValueError, match="slot 3: no step in flight samples its token 2"):
        pair.prepare(make_rows([3], [0], [2], [[1]], in_flight=True))


def test_rows_behind_their_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="slot 2: position 8 has no block"):
        Pair().prepare(make_rows([2], [5], [8], [[1, 2]]))


def test_what_a_window_has_passed_is_not_sent() -> None:
    """WB1: entries ahead of what a query looks at are anybody's; a block that comes by its side is."""
    pair = Pair(WINDOW)
    spine, window = [1, 2, 3, 4], [11, 12, 13, 14]
    rows = make_rows([2], [5], [8], [spine])
    rows.block_tables.append(np.array([window], np.int32))
    assert pair.prepare(rows) == (1, 3 + 3), "positions 3 to 8 are seen: blocks 0 to 2"
    rows = make_rows([2], [5], [9], [spine])
    rows.block_tables.append(np.array([[77, *window[1:]]], np.int32))
    assert pair.prepare(rows) == (1, 0), "positions 4 to 9 are seen: block 0 is not"
    rows = make_rows([2], [5], [12], [spine])
    rows.block_tables.append(np.array([[77, *window[1:]]], np.int32))
    assert pair.prepare(rows) == (1, 2)
    pair.assert_holds(rows, [5])
    scratch = pair.state.block_tables[:, NUM_SLOTS].tolist()
    assert scratch == [[SCRATCH] * MAX_BLOCKS, [WINDOW.num_blocks] * MAX_BLOCKS]


@pytest.mark.parametrize("groups", [(), (WINDOW, CHUNK)], ids=["spine", "groups"])
def test_random_steps(groups: tuple[BlockGroup, ...]) -> None:
    """Requests come, decode and go on random slots; at each step the device holds what the host would send."""
    random, pair = np.random.default_rng(4), Pair(*groups)
    lengths = np.zeros(NUM_SLOTS, np.int32)
    tokens = np.zeros(NUM_SLOTS, np.int32)
    tables = np.zeros((1 + len(groups), NUM_SLOTS, MAX_BLOCKS), np.int32)
    sent = 0
    for _ in range(300):
        for slot in range(NUM_SLOTS):
            if lengths[slot] + 1 >= MAX_BLOCKS * BLOCK_SIZE or not lengths[slot] or random.random() < 0.05:
                lengths[slot] = random.integers(1, 9)
                tokens[slot] = random.integers(500)
                tables[:, slot] = random.integers(30, size=(len(tables), MAX_BLOCKS))
        slots = np.flatnonzero(random.random(NUM_SLOTS) < 0.8).astype(np.int32)
        rows = DecodeRows(
            slots, tokens[slots], lengths[slots] - 1, list(tables[:, slots]), np.zeros(len(slots), np.bool_)
        )
        sent += pair.prepare(rows)[0]
        pair.assert_holds(rows, tokens[slots].tolist())
        new = random.integers(500, size=len(slots)).astype(np.int32)
        pair.sample(slots, lengths[slots], new.tolist())
        pair.mirror.collected(slots, lengths[slots], new)
        tokens[slots] = new
        lengths[slots] += 1
    assert sent < 200, "most rows are not sent again"
    assert pair.state.block_tables[0, NUM_SLOTS].tolist() == [SCRATCH] * MAX_BLOCKS


def test_upload() -> None:
    assert upload([np.empty(0, np.int64)], CPU)[0].tolist() == []
    columns = [
        np.arange(5, dtype=np.int32),
        np.array([0.5, 2.0]),
        np.zeros((0, 3), np.int64),
        np.eye(3, dtype=np.float32),
    ]
    for tensor, column in zip(upload(columns, CPU), columns, strict=True):
        assert torch.equal(tensor, torch.from_numpy(column))
        assert tensor.dtype == torch.from_numpy(column).dtype


@pytest.mark.parametrize("largest", [1, 3, 8, 100, LARGEST_BUCKET])
def test_buckets(largest: int) -> None:
    sizes = bucket_sizes(largest)
    assert sizes[-1] == largest
    assert list(sizes) == sorted(set(sizes))
    for count in range(1, largest + 1):
        size = bucket_for(count, sizes)
        assert size is not None
        assert count <= size < count + max(8, count / 8) or size == largest
    assert bucket_for(largest + 1, sizes) is None
