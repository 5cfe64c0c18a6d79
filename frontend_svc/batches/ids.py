"""Names of files and batches. They sort as they were made, and nothing else may become part of a path."""

from __future__ import annotations

import hashlib
import re
import secrets
import time

FILE_PREFIX = "file-"
BATCH_PREFIX = "batch_"
_FILE = re.compile(r"file-[0-9a-f]{24}")
_BATCH = re.compile(r"batch_[0-9a-f]{24}")
_NUM_TIME_DIGITS = 16


def make_id(prefix: str) -> str:
    """A new name: nanoseconds, then 32 random bits."""
    return f"{prefix}{time.time_ns():0{_NUM_TIME_DIGITS}x}{secrets.token_hex(4)}"


def is_file_id(text: str) -> bool:
    """Whether a file could be called so."""
    return _FILE.fullmatch(text) is not None


def is_batch_id(text: str) -> bool:
    """Whether a batch could be called so."""
    return _BATCH.fullmatch(text) is not None


def result_id(batch_id: str, kind: str) -> str:
    """Name of the file with a batch's outputs or errors: the same whenever it is asked for, so that finishing a batch
    again makes no second file."""
    digits = batch_id.removeprefix(BATCH_PREFIX)
    suffix = hashlib.sha256(f"{batch_id} {kind}".encode()).hexdigest()[: len(digits) - _NUM_TIME_DIGITS]
    return FILE_PREFIX + digits[:_NUM_TIME_DIGITS] + suffix


def request_id(batch_id: str, line: int) -> str:
    """Name of a line of a batch in the files of its results."""
    return f"batch_req_{batch_id.removeprefix(BATCH_PREFIX)}_{line}"


def line_of(name: str) -> int:
    """The line that `request_id` named. Raises ValueError."""
    return int(name.rpartition("_")[2])
