"""The columns of step deltas, step reports and output batches: one table of how they are packed, for both directions.

Columns are bytes fields, their elements integers of fixed width, little endian, as on every machine that we run on. No
numpy here: frontends read columns too, and have none (signalbox/protocol/arrays.py is for those who have).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from google.protobuf.message import Message

assert sys.byteorder == "little", "columns are written as they lie in memory"
U8, U16, U32, U64, I32 = "B", "H", "I", "Q", "i"
"""Widths, as modules array and numpy call them."""
BLOCK_ID_BYTES = 4
HOST_BIT = 1 << 31
"""Set in a block id of a copy: the block is one of the host tier."""


def pack(values: Iterable[int], width: str) -> bytes:
    """The bytes of one column."""
    return array(width, values).tobytes()


def unpack(raw: bytes, width: str) -> list[int]:
    """The numbers of one column; most of most steps are empty. ValueError when it ends within an element."""
    if not raw:
        return []
    column = array(width)
    if len(raw) % column.itemsize:
        raise ValueError("a column ends in the middle of an element")
    column.frombytes(raw)
    return column.tolist()


class Columns:
    """Columns of a message that are as long as each other: element i of each is about the same thing. Unset when there
    is nothing to say."""

    def __init__(self, **widths: str) -> None:
        """Names of fields, in order."""
        self.widths = tuple(widths.items())
        self._raws: Callable[[Message], tuple[bytes, ...]] = attrgetter(*widths)

    def write(self, message: Message, rows: Sequence[Sequence[int]]) -> None:
        """At least one row, each of as many elements as there are columns, or more, which are left out."""
        for (name, width), values in zip(self.widths, zip(*rows, strict=True), strict=False):
            setattr(message, name, array(width, values).tobytes())

    def read(self, message: Message) -> list[tuple[Any, ...]]:
        """The rows. ValueError when columns do not fit each other."""
        if not any(self._raws(message)):
            return []
        columns = self.read_columns(message)
        if len({len(column) for column in columns}) > 1:
            raise ValueError(f"{' and '.join(name for name, _ in self.widths)} differ in length")
        return list(zip(*columns, strict=True))

    def read_columns(self, message: Message) -> list[list[int]]:
        """Each for itself; whoever reads sees to their lengths."""
        return [unpack(raw, width) for raw, (_, width) in zip(self._raws(message), self.widths, strict=True)]


# -- SchedulerOutput: slots, unless a group says more, are U16 columns of their own --

STARTS = Columns(slots=U16, block_counts=U32, num_computed_tokens=U32, num_scheduled_tokens=U32)
"""Their blocks stand in `block_ids`, U32, one slot's behind the other's."""
GROUP_STARTS = Columns(firsts=U32, block_counts=U32)
"""Their blocks stand as those of STARTS do."""
GRANTS = Columns(new_block_slots=U16, new_block_ids=U32)
CHUNKS = Columns(chunk_slots=U16, chunk_starts=U32, chunk_lengths=U32)
COPIES = Columns(source_block_ids=U32, target_block_ids=U32)
CHECKPOINTS = Columns(slots=U16, checkpoint_ids=U32, positions=U32)
EXPORTS = Columns(export_slots=U16, export_transfers=U64)
"""Columns of Handoffs; targets and keys are repeated fields beside them."""
THAWED = Columns(thawed_slots=U16, thawed_legs=U32)
IMPORT_STARTS = Columns(slots=U16, block_counts=U32, num_found=U32)
"""Their blocks stand as those of STARTS do."""
DRAFTS = Columns(draft_slots=U16, draft_limits=U8)
LANES = Columns(lane_slots=U16, lanes=U8)
"""Column of drafts, of ModelRunnerOutput too."""

# -- ModelRunnerOutput --

EXCEPTIONS = Columns(exception_slots=U16, exception_counts=U8)
NOT_RUN = Columns(not_run_slots=U16, not_run_reasons=U8)
FINISHED = Columns(finished_slots=U16, finished_reasons=U8, finished_counts=U32)
SEALED = Columns(sealed_slots=U16, sealed_indexes=U16)
"""Their hashes stand in `sealed_hashes`, HASH_BYTES each."""
MASKS = Columns(mask_slots=U16, mask_us=U32)

# -- OutputBatch: `counts` is U8, `token_ids` I32 --

ATTEMPTS = Columns(attempts=U32, starts=U32)
