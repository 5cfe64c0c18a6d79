"""A segment: a file of blocks of one group, each with its name and its checksum. It is written once and never changed.

    header   magic, format, group, bytes per record, number of records, fingerprint, checksum of all that before it
    index    of each record 16 bytes of name and 4 of checksum (of name and payload), then a checksum of the index
    payloads one behind the other

All numbers are little endian. What the names stand for is the fingerprint's affair.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from signalbox.protocol.hash_chain import HASH_BYTES
from worker_svc.disk.fingerprint import FINGERPRINT_BYTES, FORMAT

MAGIC = b"sbxkvseg"
_FIELDS = struct.Struct(f"<8sIIQI{FINGERPRINT_BYTES}s")
_CHECKSUM = struct.Struct("<I")
_ENTRY = struct.Struct(f"<{HASH_BYTES}sI")
HEADER_BYTES = _FIELDS.size + _CHECKSUM.size
MAX_RECORDS = 1 << 20


class SegmentError(Exception):
    """A file is no segment of ours, or not all of one."""


class NotAFileError(SegmentError):
    """An entry has the name of a segment, and is no file: a directory, a pipe, a socket, a device."""


class Payload(NamedTuple):
    """A block that is to be written."""

    name: bytes
    content: bytes | memoryview


class Record(NamedTuple):
    """Where a block stands in a segment."""

    offset: int
    """In bytes, from the beginning of the file."""
    checksum: int


class Index(NamedTuple):
    """What a segment has."""

    group: int
    record_bytes: int
    records: dict[bytes, Record]


def checksum_of(name: bytes, content: bytes | memoryview) -> int:
    """The checksum of a block under a name: a block that stands in another's place is wrong, too."""
    return crc32(content, crc32(name))


def write(file: int, fingerprint: bytes, group: int, record_bytes: int, payloads: Sequence[Payload]) -> int:
    """Writes a segment to an open file; returns its size in bytes. OSError as the disk has it."""
    fields = _FIELDS.pack(MAGIC, FORMAT, group, record_bytes, len(payloads), fingerprint)
    index = b"".join(_ENTRY.pack(name, checksum_of(name, content)) for name, content in payloads)
    head = fields + _CHECKSUM.pack(crc32(fields)) + index + _CHECKSUM.pack(crc32(index))
    _write_all(file, head)
    for _, content in payloads:
        assert len(content) == record_bytes, "a record of another size"
        _write_all(file, content)
    return len(head) + record_bytes * len(payloads)


def _write_all(file: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def open_file(path: Path) -> int:
    """Opens a file to be read. NotAFileError for any other entry, without waiting for one; OSError as the disk has
    it."""
    file = os.open(
        path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    )  # a pipe that nobody writes to would hang
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotAFileError("it is no file")
    return file


def read_index(path: Path, fingerprint: bytes) -> Index:
    """What a segment has, from its first bytes: payloads are not read. SegmentError for what is not one of ours, or
    was cut short; OSError as the disk has it."""
    with os.fdopen(open_file(path), "rb", buffering=0) as file:
        fields = file.read(HEADER_BYTES)
        if len(fields) < HEADER_BYTES:
            raise SegmentError("it has no header")
        magic, version, group, record_bytes, count, owner = _FIELDS.unpack(fields[: _FIELDS.size])
        if magic != MAGIC or _CHECKSUM.unpack(fields[_FIELDS.size :])[0] != crc32(fields[: _FIELDS.size]):
            raise SegmentError("its header is wrong")
        if version != FORMAT or owner != fingerprint or count > MAX_RECORDS:
            raise SegmentError("it is of another model or format")
        index_bytes = count * _ENTRY.size
        raw = file.read(index_bytes + _CHECKSUM.size)
        first = HEADER_BYTES + index_bytes + _CHECKSUM.size
        if os.fstat(file.fileno()).st_size != first + count * record_bytes or len(raw) < first - HEADER_BYTES:
            raise SegmentError("it was cut short")
    index = raw[:index_bytes]
    if _CHECKSUM.unpack(raw[index_bytes:])[0] != crc32(index):
        raise SegmentError("its index is wrong")
    records = {
        name: Record(first + number * record_bytes, checksum)
        for number, (name, checksum) in enumerate(_ENTRY.iter_unpack(index))
    }
    return Index(group, record_bytes, records)


def read_record(file: int, name: bytes, record: Record, into: memoryview) -> bool:
    """Reads a block into memory of its size; False: it is not what was written. OSError as the disk has it."""
    done = 0
    while done < len(into):
        count = os.preadv(file, [into[done:]], record.offset + done)
        if not count:
            return False
        done += count
    return checksum_of(name, into) == record.checksum
