"""A simulated model: no network, no text, but a real KV cache.

For scale and protocol tests; never to be presented as a model. The next token is a hash of what is read back *through
the block tables*, so a wrong block, a stale cache entry or a wrong position shows as a wrong token. With recurrent
states it is read back through these, too.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from signalbox.protocol.block_groups import SPINE
from signalbox.protocol.model_identity import UNSAID, ModelIdentity
from worker_svc.core.batch import Batch, BlockCopy, RunnerInfo, Sampled, StateCopy
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.runner.sim.failures import FailingModel, SimFailures
from worker_svc.transfer.block_memory import BlockMemory, strip_of
from worker_svc.transfer.errors import TransferError
from worker_svc.transfer.shared_memory import SharedMemory, room_for

I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_POISON = np.array([_GOLDEN])


def mix(value: U64) -> U64:
    """A good 64-bit hash of each element (the finalizer of splitmix64, Steele et al. 2014)."""
    value = value + _GOLDEN
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def content(tokens: I32, positions: I32) -> U64:
    """What the simulated model keeps in the cache for a token at a position."""
    return mix(tokens.astype(np.uint64) << np.uint64(32) | positions.astype(np.uint64))


def next_token(total: U64, vocab_size: int) -> I32:
    """The token that follows a sequence whose contents sum to `total`."""
    return (mix(total) % np.uint64(vocab_size)).astype(np.int32)


def seed_of(identity: ModelIdentity) -> U64:
    """What the weights of the simulated model add to all that it writes and reads; 0 where they have no name."""
    return np.frombuffer(identity.key[:8] or bytes(8), np.uint64)


def continuation(
    tokens: list[int], count: int, vocab_size: int, identity: ModelIdentity = UNSAID
) -> list[int]:
    """What an undisturbed run would output after `tokens`."""
    known, seed = np.array(tokens, np.int32), seed_of(identity)
    contents = content(known, np.arange(len(known), dtype=np.int32)) + seed
    total = contents.sum(dtype=np.uint64, keepdims=True)
    output: list[int] = []
    for position in range(len(tokens), len(tokens) + count):
        token = next_token(total + seed, vocab_size)
        output.append(int(token[0]))
        total += content(token, np.array([position], np.int32)) + seed
    return output


@dataclass(frozen=True)
class SimTiming:
    """How long a step takes: `base + per_token * query tokens + per_context * context tokens`, in milliseconds."""

    base_ms: float = 0.0
    per_token_ms: float = 0.0
    copy_ms_per_block: float = 0.0
    """Milliseconds to copy a block between device and host tier."""

    def seconds(self, batch: Batch) -> float:
        """How long `batch` takes, in seconds."""
        return (self.base_ms + self.per_token_ms * len(batch.token_ids)) / 1e3


def make_caches(
    counts: list[int], block_size: int, *, shared: bool = False
) -> tuple[list[U64], SharedMemory | None]:
    """Empty caches of so many blocks each, and the memory that they share with others, if they do."""
    if not shared:
        return [np.zeros((count, block_size), np.uint64) for count in counts], None
    sizes = [count * block_size * 8 for count in counts]
    memory = SharedMemory(room_for(*sizes))
    parts = [memory.take(size).view(np.uint64) for size in sizes]
    return [part.reshape(-1, block_size) for part in parts], memory


class SimRunner:
    """Runs batches on the simulated model."""

    def __init__(
        self,
        info: RunnerInfo,
        timing: SimTiming | None = None,
        failures: SimFailures | None = None,
        shared: bool = False,
    ) -> None:
        """shared: other processes of the machine can be let read its blocks."""
        self._seed = seed_of(info.identity)
        self._failing = FailingModel(failures) if failures else None
        self._timing = timing or SimTiming()
        counts = [info.num_blocks, *(group.num_blocks for group in info.groups)]
        host_counts = [info.num_host_blocks, *(group.num_host_blocks for group in info.groups)]
        (self._cache, *self._group_caches), memory = make_caches(counts, info.block_size, shared=shared)
        (self._host, *self._group_hosts), _ = make_caches(host_counts, info.block_size)
        self.block_memory = BlockMemory(
            [[strip_of(cache)] for cache in (self._cache, *self._group_caches)],
            info.groups,
            info.block_size,
            memory,
        )
        layout = (
            f"{self.block_memory.digest} states {info.num_state_versions > 0} drafts {info.max_draft_tokens}"
        )
        self.info = replace(info, kv_layout=hashlib.sha256(layout.encode()).hexdigest())
        self._states: dict[tuple[int, int], U64] = {}
        """By slot and version: the sum of all contents that it has behind it, in an array of one element."""
        self._drafts: dict[tuple[int, int], U64] = {}
        """By slot and version: the contents of the drafts behind it."""
        self._checkpoints: dict[int, U64] = {}
        """Such states, by checkpoint."""
        self._host_checkpoints: dict[int, U64] = {}
        """States in the host tier, by checkpoint there."""

    def execute(self, batch: Batch) -> Sampled:
        """Writes the contents of all query tokens, reads each sample's whole sequence back, and hashes it."""
        started = time.monotonic()
        sampled = self.compute(batch)
        rest = self._timing.seconds(batch) - (time.monotonic() - started)
        if rest > 0:
            time.sleep(rest)
        return sampled

    def compute(self, batch: Batch) -> Sampled:
        """`execute` in no time."""
        if self._failing is not None:
            self._failing.check(batch)
        size = self.info.block_size
        rows = np.repeat(np.arange(len(batch.slots)), np.diff(batch.query_starts))
        blocks = batch.block_tables[rows, batch.positions // size]
        contents = content(batch.token_ids, batch.positions) + self._seed
        self._cache[blocks, batch.positions % size] = contents
        for cache, tables in zip(self._group_caches, batch.group_tables, strict=True):
            cache[tables[rows, batch.positions // size], batch.positions % size] = contents
        totals = np.zeros(len(batch.sample_index), np.uint64)
        for sample, (row, query) in enumerate(zip(batch.sample_rows, batch.sample_index, strict=True)):
            length = int(batch.positions[query]) + 1
            read = self._cache[batch.block_tables[row, : -(-length // size)]].reshape(-1)[:length]
            totals[sample] = read.sum(dtype=np.uint64)
            for number, group in enumerate(self.info.groups):
                first = group.first_seen(length - 1)
                through = self._seen_through(number, batch.group_tables[number][row], first, length)
                totals[sample : sample + 1] += (
                    through - read[first:].sum(dtype=np.uint64, keepdims=True)
                ) * _GOLDEN
        if self.info.num_state_versions:
            through_states = self._move_states(batch, contents)[batch.sample_index]
            totals += (through_states - totals) * _GOLDEN
        sampled = Sampled(next_token(totals + self._seed, self.info.vocab_size))
        if self._failing is not None:
            sampled.bad_rows = self._failing.bad_rows(batch)
        return sampled

    def _seen_through(self, number: int, table: I32, first: int, end: int) -> U64:
        """The sum of the contents of positions `[first, end)`, in an array of one element, through a row's `table` in
        a group: what the spine says of them, unless something is wrong."""
        size = self.info.block_size
        start = first // size * size
        read = self._group_caches[number][table[first // size : -(-end // size)]].reshape(-1)
        total: U64 = read[first - start : end - start].sum(dtype=np.uint64, keepdims=True)
        return total

    def _move_states(self, batch: Batch, contents: U64) -> U64:
        """`[T]` the states behind each query token; the one behind a row's last that is no draft is kept in the version
        that it writes, with its drafts."""
        states, versions = np.empty_like(contents), self.info.num_state_versions
        keeps = {
            row: [keep for keep in batch.state_keeps if keep.row == row] for row, _, _ in batch.state_keeps
        }
        for row, slot in enumerate(batch.slots.tolist()):
            read, written = (slot, int(batch.state_reads[row])), (slot, int(batch.state_writes[row]))
            start, end = batch.query_starts[row : row + 2].tolist()
            known, num_tail = start + int(batch.known_lengths[row]), int(batch.state_tails[row])
            tail: U64 = self._drafts[read][:num_tail] if num_tail else contents[:0]
            before = np.zeros(1, np.uint64) if read[1] == NOTHING else self._states[read]
            walked: U64 = np.concatenate((tail, contents[start:end]))
            behind = np.cumsum(walked, dtype=np.uint64) + before
            states[start:end] = behind[num_tail:]
            for _, at, checkpoint in keeps.get(row, ()):
                state = behind[at - start + num_tail - 1 :][:1].copy()
                if checkpoint == NOTHING:
                    self._states[slot, versions] = state
                else:
                    self._checkpoints[checkpoint] = state
            self._states[written], self._drafts[written] = (
                states[known - 1 : known].copy(),
                contents[known:end],
            )
            if known < end:
                self._states[slot, (written[1] + 1) % versions] = np.array([_GOLDEN])
        return states

    def read_state(self, slot: int, version: int, num_drafts: int) -> bytes:
        """The sum, and the contents of drafts behind it; see `HandoffRunner`."""
        drafts = self._drafts.get((slot, version), np.zeros(0, np.uint64))
        return self._states[slot, version].tobytes() + drafts[:num_drafts].tobytes()

    def write_state(self, slot: int, version: int, num_drafts: int, content: bytes) -> None:
        """Puts back what `read_state` gave; see `HandoffRunner`."""
        if not self.info.num_state_versions or len(content) != 8 * (1 + num_drafts):
            raise TransferError(f"{len(content)} bytes are no state with {num_drafts} drafts")
        numbers = np.frombuffer(content, np.uint64)
        self._states[slot, version], self._drafts[slot, version] = numbers[:1].copy(), numbers[1:].copy()

    def check(self) -> None:
        """Raises what `ModelRunner.check` does: the simulated device is lost when it was asked to be."""
        if self._failing is not None:
            self._failing.check_device()

    def poison(self, group: int, blocks: list[int], *, are_host: bool = False) -> None:
        """Fills blocks of a group with what no token leaves behind, for tests."""
        places = self._place(group, are_host=are_host)
        for block in blocks:
            places[block] = _POISON

    def _place(self, group: int, *, are_host: bool) -> U64 | dict[int, U64]:
        """Where the blocks of a group are, on the device or in the host tier; those behind the last are checkpoints."""
        if group == SPINE:
            return self._host if are_host else self._cache
        if group <= len(self.info.groups):
            return (self._group_hosts if are_host else self._group_caches)[group - 1]
        return self._host_checkpoints if are_host else self._checkpoints

    def record_bytes(self) -> list[int]:
        """Bytes of a block of each group; see `BlockMemory`."""
        return [self.info.block_size * self._cache.itemsize] * (1 + len(self.info.groups))

    def reads_aside(self, group: int, blocks: I32) -> Callable[[], NDArray[np.uint8]]:
        """Returns what reads blocks; see `BlockMemory`."""
        cache = self._cache if group == SPINE else self._group_caches[group - 1]
        return lambda: cache[blocks].view(np.uint8)

    def writes_aside(self, group: int, blocks: I32) -> Callable[[NDArray[np.uint8]], None]:
        """Returns what writes blocks; see `BlockMemory`."""
        cache = self._cache if group == SPINE else self._group_caches[group - 1]

        def write(content: NDArray[np.uint8]) -> None:
            cache[blocks] = content.view(np.uint64)

        return write

    def copies_aside(self, copies: list[BlockCopy]) -> Callable[[], None]:
        """Returns a callable that makes the copies beside the steps; nothing is given ahead."""
        return partial(self.copy_blocks, copies)

    def copy_states(self, copies: list[StateCopy]) -> None:
        """Copies states, in order."""
        for slot, version, checkpoint, is_restored in copies:
            if is_restored:
                self._states[slot, version] = self._checkpoints[checkpoint]
            else:
                self._checkpoints[checkpoint] = self._states[slot, version]

    def copy_blocks(self, copies: list[BlockCopy]) -> None:
        """Copies whole blocks, in order."""
        if self._timing.copy_ms_per_block:
            time.sleep(self._timing.copy_ms_per_block * len(copies) / 1e3)
        for copy in copies:
            source = self._place(copy.group, are_host=copy.source_is_host)
            target = self._place(copy.group, are_host=copy.target_is_host)
            target[copy.target] = source[copy.source]


class SimDrafter(Drafter):
    """Guesses for the simulated model: right with a given probability each, decided by a hash of the sequence."""

    def __init__(self, vocab_size: int, acceptance: float, identity: ModelIdentity = UNSAID) -> None:
        self._vocab_size, self._identity = vocab_size, identity
        self._acceptance = acceptance

    def propose(self, slot: int, tokens: I32, limit: int) -> I32:
        """`limit` guesses for what follows `tokens`."""
        count = max(limit, 0)
        guesses = np.array(continuation(tokens.tolist(), count, self._vocab_size, self._identity), np.int32)
        luck = mix(guesses.astype(np.uint64) + np.uint64(len(tokens))) >> np.uint64(11)
        right = luck < np.uint64(int(self._acceptance * 2**53))
        return np.where(right, guesses, (guesses + 1) % self._vocab_size).astype(np.int32)
