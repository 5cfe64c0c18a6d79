"""Columns of messages as numpy arrays, for services that have numpy: never the frontend, whose image has none."""

from __future__ import annotations

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from signalbox.protocol.columns import U32, Columns


def write_arrays(message: Message, columns: Columns, *arrays: NDArray[np.integer]) -> None:
    """One array per column, all as long as each other."""
    for (name, width), values in zip(columns.widths, arrays, strict=True):
        setattr(message, name, values.astype(width).tobytes())


def read_arrays(message: Message, columns: Columns) -> list[NDArray[np.int64]]:
    """One array per column. ValueError when a column ends within an element, not when lengths differ."""
    return [np.frombuffer(getattr(message, name), width).astype(np.int64) for name, width in columns.widths]


def pack_blocks(block_ids: NDArray[np.integer]) -> bytes:
    """Block ids, as everywhere but in COPIES."""
    return block_ids.astype(U32).tobytes()


def unpack_blocks(raw: bytes) -> NDArray[np.int32]:
    """Block ids of a column; they are far below 2**31."""
    return np.frombuffer(raw, U32).astype(np.int32)
