"""Steps, copies, hand-offs and a disk on one memory, as the scheduler's rules allow them, in random order: what is
read is what would be there if all were done one by one."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from signalbox.protocol.block_groups import BlockGroup
from signalbox.protocol.enums import BlockGroupKind
from tests.worker_svc.runner.cuda.copies.streams import LateStreams
from worker_svc.core.batch import BlockCopy
from worker_svc.runner.attention.kv_cache import KVCache, LayerShape
from worker_svc.runner.attention.layer_groups import CacheLayout
from worker_svc.runner.cuda.copies.blocks import DeviceBlocks
from worker_svc.runner.cuda.copies.levels import I64
from worker_svc.runner.cuda.copies.rows import Move, PlacedRows
from worker_svc.runner.recurrent.layout import LayerState, StateLayout, StateShape
from worker_svc.runner.recurrent.state_bytes import all_tensors
from worker_svc.runner.recurrent.store import StateStore

CPU = torch.device("cpu")
SHAPES = [
    LayerShape(2, 4, 4),
    LayerShape(1, 3, 2),
    LayerShape(2, 4, 4),
    LayerShape(1, 6, 4, values_in_keys=True),
    LayerShape(2, 4, 4, shares=0),
]
"""Two layers alike, one of other sizes, a latent, and one that reads another's."""
OF_LAYERS = [0, 1, 0, 1, 0]
NUM_BLOCKS, NUM_HOST, BLOCK_SIZE = (8, 6), (5, 4), 2
CHECKPOINTS = 2
"""Number of their group."""
NUM_SLOTS, NUM_VERSIONS, NUM_CHECKPOINTS, NUM_DRAFTS = 2, 3, 4, 2
Place = tuple[int, bool, int]
"""Group, whether it is in the host tier, and number of a block."""


def make_cache() -> tuple[KVCache, CacheLayout]:
    """A cache with a scratch block in each group, as a GPU has them."""
    cache = KVCache(
        SHAPES,
        num_blocks=NUM_BLOCKS[0] + 1,
        block_size=BLOCK_SIZE,
        dtype=torch.float32,
        device=CPU,
        blocks_of=lambda layer: NUM_BLOCKS[OF_LAYERS[layer]] + 1,
        of_layers=OF_LAYERS,
    )
    cache.add_host_tier(NUM_HOST)
    window = BlockGroup(BlockGroupKind.WINDOW, 8, NUM_BLOCKS[1], num_host_blocks=NUM_HOST[1])
    return cache, CacheLayout(NUM_BLOCKS[0], (window,), tuple(OF_LAYERS))


def make_store() -> StateStore:
    """Recurrent states of two layers, with drafts behind them."""
    parts = LayerState(StateShape((3, 4), torch.float32), StateShape((2, 5), torch.float32))
    return StateStore(
        StateLayout({1: parts, 3: parts}),
        num_slots=NUM_SLOTS,
        num_versions=NUM_VERSIONS,
        num_checkpoints=NUM_CHECKPOINTS,
        num_host_checkpoints=NUM_CHECKPOINTS,
        num_drafts=NUM_DRAFTS,
        width=6,
    )


def shuffled(move: Move, seed: int) -> Move:
    """A device makes copies of one launch in any order."""
    rng = np.random.default_rng(seed)

    def run(rows: PlacedRows, columns: I64) -> None:
        move(rows, rng.permutation(columns))

    return run


def next_block(move: Move) -> Move:
    """Planted: the block behind the one that was asked for."""

    def run(rows: PlacedRows, columns: I64) -> None:
        move(rows, columns + np.array([0, 1, 0, 0]) * (columns[:, 1:2] < 3))

    return run


def other_layer(move: Move) -> Move:
    """Planted: blocks of a layer go to another one of the same shape."""

    def run(rows: PlacedRows, columns: I64) -> None:
        shapes = [tensor.shape for tensor in rows.tensors[0]]
        twins = [(a, b) for a in range(len(shapes)) for b in range(a) if shapes[a] == shapes[b]]
        before = rows.tensors
        order = list(range(len(shapes)))
        for a, b in twins[:1]:
            order[a], order[b] = b, a
        swapped = tuple(before[0][number] for number in order) if before[0] else ()
        rows.tensors = (swapped, *before[1:])
        rows.addresses[0] = rows.addresses[0][torch.tensor(order, dtype=torch.int64)]
        try:
            move(rows, columns)
        finally:
            rows.tensors = before
            rows.addresses[0] = rows.addresses[0][torch.tensor(order, dtype=torch.int64)]

    return run


class WrongContentError(AssertionError):
    """Something was read that should not be there."""


def check_equal(found: bytes, expected: bytes, what: str) -> None:
    """WrongContentError where two contents differ."""
    if found != expected:
        raise WrongContentError(f"{what} holds {np.frombuffer(found, np.float32)[:4]}")


@dataclass(eq=False)
class _Open:
    """A copy beside the steps, and the blocks that no request owns until it has ended."""

    end: Callable[[], None]
    blocks: set[Place]


@dataclass
class Scenario:
    """One run. WrongContentError where something was read that should not be there."""

    streams: LateStreams
    move: Move
    seed: int
    plant: Callable[[Move], Move] = lambda move: move
    """What is done to the copies once the memory is made, which would find it."""
    num_rounds: int = 200
    known: dict[Place, float] = field(default_factory=dict)
    """What a block holds when all that was ordered is done; those whose content is not known are missing."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.cache, layout = make_cache()
        self.store = make_store()
        self.blocks = DeviceBlocks(
            self.cache, layout, self.store, self.streams, shuffled(self.move, self.seed)
        )
        self.blocks.copier._move = shuffled(self.plant(self.move), self.seed)
        self.streams.is_planted = True
        self._tag = 0.0
        self._open: deque[_Open] = deque()
        self._last_step = self.streams.mark()
        self._states: dict[tuple[int, int], float] = {}
        """What the versions of slots hold."""
        counts = [*zip(NUM_BLOCKS, NUM_HOST, strict=True), (NUM_CHECKPOINTS, NUM_CHECKPOINTS)]
        self._places = [
            (group, is_host, block)
            for group, both in enumerate(counts)
            for is_host, count in zip((False, True), both, strict=True)
            for block in range(count)
        ]

    def run(self) -> None:
        """All rounds, and a look at everything at the end."""
        acts = [
            *[self.step] * 4,
            *(self.copy_in_step, self.begin_copies, self.begin_copies),
            *[self.end_oldest] * 3,
            *(self.export, self.take_in, self.begin_store, self.begin_load),
            *(self.export_state, self.take_state, self.lose_launch),
        ]
        for place in self._places:
            self._write_in_step(place, self._next_tag())
        self._last_step = self.streams.mark()
        for _ in range(self.num_rounds):
            self.random.choice(acts)()
            self.streams.stir()
        while self._open:
            self.end_oldest()
        self.streams.drain()
        for place, tag in self.known.items():
            self._expect(place, tag)

    # -- what steps do --

    def step(self) -> None:
        """Writes some blocks and states, and reads others."""
        for place in self._some(3, is_host=False):
            self._write_in_step(place, self._next_tag())
        for place in self._some(3, is_host=False, is_known=True):
            self.streams.run(partial(self._expect, place, self.known[place]))
        slot, version = self.random.randrange(NUM_SLOTS), self.random.randrange(NUM_VERSIONS)
        self._states[slot, version] = tag = self._next_tag()
        self.streams.run(partial(self._fill_state, slot, version, tag))
        self._last_step = self.streams.mark()

    def copy_in_step(self) -> None:
        """Copies, some of which follow from others."""
        self.blocks.copier.copy(self._copies(self._some(5)))

    def lose_launch(self) -> None:
        """A step that fails on its way: what it was given goes on, and no results tell of its end."""
        for place in self._some(2, is_host=False):
            self.streams.run(partial(self._fill, place, -1.0))
            self.known.pop(place, None)
        self.blocks.copier.note()

    # -- what goes on beside them --

    def begin_copies(self) -> None:
        """Copies beside the steps (X4)."""
        places = self._some(5)
        self._begin(self.blocks.copier.copies_aside(self._copies(places)), places)

    def end_oldest(self) -> None:
        """A fence ends."""
        if self._open:
            self._open.popleft().end()

    def export(self) -> None:
        """Another worker reads blocks that committed steps have written."""
        group, places = self._of_one_group(is_known=True)
        self._last_step.synchronize()
        content = self.blocks.read(group, [block for _, _, block in places])
        check_equal(content, self._bytes(group, [self.known[place] for place in places]), "an export")

    def take_in(self) -> None:
        """Blocks come from another worker."""
        group, places = self._of_one_group()
        tags = [self._next_tag() for _ in places]
        self._last_step.synchronize()
        self.blocks.write(group, [block for _, _, block in places], self._bytes(group, tags))
        self.known.update(zip(places, tags, strict=True))

    def begin_store(self) -> None:
        """A disk reads blocks."""
        group, places = self._of_one_group(is_known=True)
        tags = [self.known[place] for place in places]
        read = self.blocks.reads_aside(group, np.array([block for _, _, block in places], np.int32))
        expected = self._records(group, tags).tobytes()
        self._begin(lambda: check_equal(read().tobytes(), expected, "a store"), places)

    def begin_load(self) -> None:
        """A disk writes blocks."""
        group, places = self._of_one_group()
        tags = [self._next_tag() for _ in places]
        write = self.blocks.writes_aside(group, np.array([block for _, _, block in places], np.int32))
        self.known.update(zip(places, tags, strict=True))
        self._begin(lambda: write(self._records(group, tags)), places)

    def export_state(self) -> None:
        """Another worker reads the state of a frozen slot."""
        if self._states:
            (slot, version), tag = self.random.choice(list(self._states.items()))
            self._last_step.synchronize()
            content = self.blocks.read_state(slot, version, NUM_DRAFTS)
            check_equal(content, np.full(len(content) // 4, tag, np.float32).tobytes(), "a state")

    def take_state(self) -> None:
        """A state comes from another worker."""
        slot, version, tag = self.random.randrange(NUM_SLOTS), 0, self._next_tag()
        self._last_step.synchronize()
        count = len(self.blocks.read_state(slot, version, NUM_DRAFTS)) // 4
        content = np.full(count, tag, np.float32).tobytes()
        self.blocks.write_state(slot, version, NUM_DRAFTS, content)
        self._states[slot, version] = tag

    # -- inside --

    def _begin(self, end: Callable[[], None], places: list[Place]) -> None:
        self._open.append(_Open(end, set(places)))

    def _some(self, most: int, *, is_host: bool | None = None, is_known: bool = False) -> list[Place]:
        """Blocks that are somebody's."""
        fenced = set[Place]().union(*(each.blocks for each in self._open))
        free = [
            place
            for place in self._places
            if place not in fenced and is_host in (None, place[1]) and (place in self.known or not is_known)
        ]
        return self.random.sample(free, min(len(free), self.random.randint(1, most)))

    def _of_one_group(self, *, is_known: bool = False) -> tuple[int, list[Place]]:
        group = self.random.randrange(CHECKPOINTS)
        some = self._some(12, is_host=False, is_known=is_known)
        return group, [place for place in some if place[0] == group]

    def _copies(self, places: list[Place]) -> list[BlockCopy]:
        """Copies among these blocks, in each group one after the other."""
        copies = []
        for target in self.random.choices(places, k=len(places) + 1 if places else 0):
            others = [place for place in places if place[0] == target[0] and place != target]
            if not others:
                continue
            source = self.random.choice(others)
            if source not in self.known:
                continue
            self.known[target] = self.known[source]
            copies.append(BlockCopy(source[2], source[1], target[2], target[1], target[0]))
        return copies

    def _next_tag(self) -> float:
        self._tag += 16
        return self._tag

    def _write_in_step(self, place: Place, tag: float) -> None:
        self.known[place] = tag
        self.streams.run(partial(self._fill, place, tag))

    def _rows(self, place: Place) -> list[torch.Tensor]:
        group, is_host, block = place
        if group == CHECKPOINTS:
            tensors = self.store.host_checkpoints if is_host else self.store.checkpoints
        else:
            tensors = self.cache.host_stored_in(group) if is_host else self.cache.stored_in(group)
        return [tensor[block] for tensor in tensors]

    def _fill(self, place: Place, tag: float) -> None:
        """Each tensor has numbers of its own, so that layers cannot be taken for each other."""
        for number, row in enumerate(self._rows(place)):
            row.fill_(tag + number)

    def _expect(self, place: Place, tag: float) -> None:
        for number, row in enumerate(self._rows(place)):
            expected = torch.full_like(row, tag + number)
            check_equal(row.numpy().tobytes(), expected.numpy().tobytes(), str(place))

    def _fill_state(self, slot: int, version: int, tag: float) -> None:
        for tensor in all_tensors(self.store):
            tensor[self.store.row(slot, version)].fill_(tag)

    def _tensors(self, group: int, tags: list[float]) -> list[np.ndarray]:  # type: ignore[type-arg]
        """What blocks hold, by tensor: `[blocks, elements]`."""
        sizes = [tensor.shape[1:].numel() for tensor in self.cache.stored_in(group)]
        column = np.array(tags, np.float32).reshape(-1, 1)
        return [np.repeat(column + np.float32(number), size, axis=1) for number, size in enumerate(sizes)]

    def _bytes(self, group: int, tags: list[float]) -> bytes:
        return b"".join(rows.tobytes() for rows in self._tensors(group, tags))

    def _records(self, group: int, tags: list[float]) -> np.ndarray:  # type: ignore[type-arg]
        rows = np.ascontiguousarray(np.hstack(self._tensors(group, tags)))
        return rows.view(np.uint8)
