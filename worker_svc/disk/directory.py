"""The directory of one fingerprint: segments of any processes that share it, and an index of what they have.

A segment comes by a rename, so that it is there whole or not at all, and goes by an unlink; whoever reads it then reads
it to its end. All processes keep the bytes of the root bounded, each by itself: what was used least goes first.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker_svc.disk import segment
from worker_svc.disk.left_out import LeftOut, is_of_process
from worker_svc.disk.segment import Index, NotAFileError, Payload, Record, SegmentError

logger = logging.getLogger(__name__)
SUFFIX = ".kv"
TEMPORARY = ".tmp"
MAX_TEMPORARY_AGE_S = 600.0
"""A file that is being written for longer was left behind by a process that has ended."""
TOUCH_S = 60.0
"""How often a use of a segment is noted on the disk."""
MOST_FAILED = 3
"""Segments in a row that cannot be read: it is the disk that fails."""
U8 = NDArray[np.uint8]


@dataclass
class Changes:
    """Names that can be found from now on, and that cannot any more, by group."""

    added: dict[int, list[bytes]] = field(default_factory=dict)
    removed: dict[int, list[bytes]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


@dataclass
class _Segment:
    path: Path
    index: Index
    touched: float = 0.0


class ReadResult(NamedTuple):
    """What came of a read."""

    is_read: NDArray[np.bool_]
    """Which of the blocks are there and right."""
    changes: Changes
    """What has turned out not to be there."""
    trouble: str
    """Why it seems to be the disk that fails: so many segments in a row could not be read; empty: it works."""


class _Found(NamedTuple):
    """One of the blocks that are asked for, by its number, and where it stands."""

    number: int
    record: Record


class SegmentDirectory:
    """Segments of one fingerprint below a root that may have others. Any thread may ask; I/O is done by the caller."""

    def __init__(self, root: Path, fingerprint: bytes, record_bytes: Sequence[int], max_bytes: int) -> None:
        """record_bytes: of a block of each group. max_bytes: of all that is below `root`."""
        self.path, self._root = root / fingerprint.hex(), root
        self._fingerprint, self.record_bytes, self.max_bytes = fingerprint, list(record_bytes), max_bytes
        self.num_bytes = 0
        """Below the root, by the last look."""
        self._segments: dict[str, _Segment] = {}
        self._places: dict[tuple[int, bytes], _Segment] = {}
        self._lock = threading.Lock()
        self._left_out = LeftOut()
        self._num_failed_in_row = 0
        """Segments that could not be read since one could."""

    @property
    def num_left_out(self) -> int:
        """Entries that are left out because they cannot be used."""
        return len(self._left_out)

    def __contains__(self, place: tuple[int, bytes]) -> bool:
        """Whether the content (group, name) is there."""
        return place in self._places

    def contents(self, most: int) -> dict[int, list[bytes]]:
        """Names of what is there, by group; of each the newest, if there are more than so many."""
        with self._lock:
            found: dict[int, list[bytes]] = {group: [] for group in range(len(self.record_bytes))}
            for group, name in self._places:
                found[group].append(name)
        return {group: names[-most:] for group, names in found.items()}

    # -- looking --

    def look(self) -> Changes:
        """Takes notice of what others have written and deleted, and of files that are left behind. OSError as the
        directory has it: an entry that cannot be used is left out (DT11)."""
        changes, seen, now = Changes(), set(), time.monotonic()
        try:
            with os.scandir(self.path) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except FileNotFoundError:
            entries = []
        for entry in entries:
            name = entry.name
            if name.endswith(TEMPORARY):
                self._clear_temporary(Path(entry.path))
            if not name.endswith(SUFFIX):
                continue
            seen.add(name)
            if name not in self._segments and not self._left_out.is_out(name, now):
                self._meet(Path(entry.path), changes)
        with self._lock:
            gone = [name for name in self._segments if name not in seen]
            self._left_out.keep(seen)
        for name in gone:
            self._close(name, changes)
        return changes

    def _meet(self, path: Path, changes: Changes) -> None:
        """An entry is new, or was left out for long enough."""
        if self._left_out.is_wrong(path.name):
            self._delete(path, changes)
        else:
            self._open(path, changes)

    def _open(self, path: Path, changes: Changes) -> None:
        try:
            index = segment.read_index(path, self._fingerprint)
            if index.record_bytes != self.record_bytes[index.group]:
                raise SegmentError("its blocks are of another size")
        except FileNotFoundError:
            return
        except NotAFileError as error:
            self._leave_out(path, str(error), changes)
        except (SegmentError, IndexError) as error:
            logger.warning("%s is deleted: %s", path, error)
            self._delete(path, changes)
        except Exception as error:  # whatever it is: an entry costs itself, and not what sorts after it
            if is_of_process(error):
                raise
            self._leave_out(path, repr(error), changes)
        else:
            self._take(_Segment(path, index), changes)

    def _leave_out(self, path: Path, reason: str, changes: Changes, *, is_wrong: bool = False) -> None:
        """Nothing is read from an entry for a time. is_wrong: it is to be deleted then."""
        with self._lock:
            is_news = self._left_out.add(path.name, time.monotonic(), is_wrong=is_wrong)
        if is_news:
            what = "cannot be deleted, others may read from it" if is_wrong else "cannot be used"
            logger.warning("%s %s; it is left out, and tried again from time to time: %s", path, what, reason)
        self._close(path.name, changes)

    def _take(self, new: _Segment, changes: Changes) -> None:
        with self._lock:
            if self._left_out.forget(new.path.name):
                logger.info("%s can be used again", new.path)
            self._segments[new.path.name] = new
            group = new.index.group
            for name in new.index.records:
                if (group, name) not in self._places:
                    self._places[group, name] = new
                    changes.added.setdefault(group, []).append(name)

    def _close(self, name: str, changes: Changes) -> None:
        with self._lock:
            gone = self._segments.pop(name, None)
            if gone is None:
                return
            group = gone.index.group
            for content in gone.index.records:
                if self._places.get((group, content)) is gone:
                    self._forget(group, content, changes)

    def _forget(self, group: int, content: bytes, changes: Changes) -> None:
        """Another segment may have it, too."""
        del self._places[group, content]
        for other in self._segments.values():
            if other.index.group == group and content in other.index.records:
                self._places[group, content] = other
                return
        changes.removed.setdefault(group, []).append(content)

    def _clear_temporary(self, path: Path) -> None:
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > MAX_TEMPORARY_AGE_S:
                path.unlink()

    # -- reading --

    def read(self, group: int, names: Sequence[bytes], into: U8) -> ReadResult:
        """Reads blocks of a group into `[n, bytes]`. OSError where the process has no room for it."""
        is_read, changes, trouble = np.zeros(len(names), np.bool_), Changes(), ""
        for place, found in self._find(group, names):
            try:
                self._read_of(place, found, names, into, is_read, changes)
            except FileNotFoundError:
                self._close(place.path.name, changes)
                continue
            except (OSError, SegmentError) as error:
                if is_of_process(error):
                    raise
                self._leave_out(place.path, repr(error), changes)
                self._num_failed_in_row += 1
                if self._num_failed_in_row >= MOST_FAILED:
                    trouble = repr(error)
                continue
            self._num_failed_in_row = 0
        return ReadResult(is_read, changes, trouble)

    def _find(self, group: int, names: Sequence[bytes]) -> list[tuple[_Segment, list[_Found]]]:
        """Segments that have any of these, each with what it has of them, in the order of the file."""
        by_path: dict[Path, tuple[_Segment, list[_Found]]] = {}
        with self._lock:
            for number, name in enumerate(names):
                place = self._places.get((group, name))
                record = place.index.records.get(name) if place is not None else None
                if place is not None and record is not None:
                    by_path.setdefault(place.path, (place, []))[1].append(_Found(number, record))
        for _, found in by_path.values():
            found.sort(key=lambda each: each.record.offset)
        return list(by_path.values())

    def _read_of(
        self,
        place: _Segment,
        found: list[_Found],
        names: Sequence[bytes],
        into: U8,
        is_read: NDArray[np.bool_],
        changes: Changes,
    ) -> None:
        file = segment.open_file(place.path)
        try:
            for number, record in found:
                name = names[number]
                is_right = segment.read_record(file, name, record, into[number].data)
                is_read[number] = is_right
                if not is_right:
                    logger.warning("a block in %s is damaged; it is computed anew", place.path)
                    self._drop(place, name, changes)
        finally:
            os.close(file)
        self._touch(place)

    def _drop(self, place: _Segment, name: bytes, changes: Changes) -> None:
        with self._lock:
            place.index.records.pop(name, None)
            if self._places.get((place.index.group, name)) is place:
                self._forget(place.index.group, name, changes)

    def _touch(self, place: _Segment) -> None:
        """Others see by its time that it was used."""
        now = time.time()
        if now - place.touched > TOUCH_S:
            place.touched = now
            with suppress(OSError):
                os.utime(place.path)

    def drop(self, names: Sequence[bytes]) -> Changes:
        """Contents that are wrong, in all groups: the segments that have any are deleted, for all who share them."""
        changes, wrong = Changes(), set(names)
        with self._lock:
            found = [each.path for each in self._segments.values() if wrong & each.index.records.keys()]
        for path in found:
            self._delete(path, changes)
        return changes

    def clear(self) -> Changes:
        """Deletes all segments of the fingerprint, for all who share them."""
        changes = Changes()
        with self._lock:
            found = [each.path for each in self._segments.values()]
        for path in found:
            self._delete(path, changes)
        return changes

    def _delete(self, path: Path, changes: Changes) -> None:
        """One that cannot be deleted is left out here, and the deletion tried again."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._leave_out(path, repr(error), changes, is_wrong=True)
            return
        with self._lock:
            self._left_out.forget(path.name)
        self._close(path.name, changes)

    # -- writing --

    def write(self, group: int, payloads: Sequence[Payload]) -> Changes:
        """Writes a segment, and makes room for it. OSError as the disk has it: then nothing is left of it."""
        changes = Changes()
        size = sum(len(payload.content) + 64 for payload in payloads) + segment.HEADER_BYTES
        self.make_room(size, changes)
        name = f"{group}-{uuid.uuid4().hex}"
        temporary, path = self.path / (name + TEMPORARY), self.path / (name + SUFFIX)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                self.num_bytes += segment.write(
                    file, self._fingerprint, group, self.record_bytes[group], payloads
                )
            finally:
                os.close(file)
            temporary.rename(path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        self._open(path, changes)
        if path.name not in self._segments and path.exists():
            raise OSError(errno.EIO, "what was written cannot be read", str(path))
        return changes

    def make_room(self, num_bytes: int, changes: Changes) -> None:
        """Deletes what was used least, of whatever fingerprint, until so many bytes more are within the bound. What
        cannot be deleted keeps its bytes. OSError where there is no room then."""
        files = []
        for path in self._root.glob(f"*/*{SUFFIX}"):
            with suppress(OSError):  # gone, or in a directory that is not ours to read
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    files.append((status.st_mtime, status.st_size, path))
        self.num_bytes, num_stuck = sum(size for _, size, _ in files), 0
        for _, size, path in sorted(files):
            if self.num_bytes + num_bytes <= self.max_bytes:
                return
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                num_stuck += 1
                logger.debug("%s cannot be deleted to make room: %r", path, error)
                continue
            self.num_bytes -= size
            if path.parent == self.path:
                self._close(path.name, changes)
        if num_stuck and self.num_bytes + num_bytes > self.max_bytes:
            reason = f"{self.num_bytes} bytes of {num_stuck} files cannot be deleted to make room"
            raise OSError(errno.EDQUOT, reason, str(self._root))
