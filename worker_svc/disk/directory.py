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
MOST_WRONG = 1 << 16
"""Names of wrong contents that are remembered, the latest."""
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
        self._failed_in_row = set[str]()
        """Names of the segments that could not be read since one could."""
        self._wrong: dict[bytes, None] = {}
        """Contents that have turned out to be wrong, in the order of the news. Only who writes asks for it."""
        self._is_to_clear = False
        """What is not open was there before a reset, and is not deleted yet."""

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

    def look(self, changes: Changes | None = None) -> Changes:
        """Takes notice of what others have written and deleted, and of files that are left behind. OSError as the
        directory has it: an entry that cannot be used is left out (DT11). changes: where they go, as those do that
        were made before an error; a new one without it."""
        changes = Changes() if changes is None else changes
        if self._is_to_clear:
            self._clear_rest(changes)
        seen, now = set[str](), time.monotonic()
        for entry in self._entries():
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

    def _entries(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.path) as found:
                return sorted(found, key=lambda entry: entry.name)
        except FileNotFoundError:
            return []

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
            if self._wrong and not self._wrong.keys().isdisjoint(index.records):
                self._delete(path, changes)
            else:
                self._take(_Segment(path, index), changes)

    def _leave_out(self, path: Path, reason: str, changes: Changes, *, is_wrong: bool = False) -> None:
        """Nothing is read from an entry for a time. is_wrong: it is to be deleted then."""
        with self._lock:
            is_news = self._left_out.add(path.name, time.monotonic(), is_wrong=is_wrong)
        if is_news:
            what = "cannot be deleted, others may read from it" if is_wrong else "cannot be used"
            _log_left_out(path, what, reason)
        self._close(path.name, changes)

    def _leave_out_unread(self, place: _Segment, content: bytes, reason: str, changes: Changes) -> None:
        """Nothing is read from a segment for a time, for one of its contents cannot be read."""
        name = place.path.name
        with self._lock:
            is_news = self._left_out.add_unread(name, time.monotonic(), content, place.index.records)
        if is_news:
            _log_left_out(place.path, "cannot be used", reason)
        self._close(name, changes)

    def _take(self, new: _Segment, changes: Changes) -> None:
        with self._lock:
            if self._left_out.take(new.path.name):
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

    def read(
        self,
        group: int,
        names: Sequence[bytes],
        into: U8,
        changes: Changes | None = None,
        *,
        is_use: bool = True,
    ) -> ReadResult:
        """Reads blocks of a group into `[n, bytes]`. OSError where the process has no room for it. changes: as in
        `look`. is_use: what is read counts as used (DT8)."""
        is_read, trouble = np.zeros(len(names), np.bool_), ""
        changes = Changes() if changes is None else changes
        for place, found in self._find(group, names):
            done: list[bytes] = []
            try:
                self._read_of(place, found, names, into, is_read, changes, done)
            except FileNotFoundError:
                self._close(place.path.name, changes)
                continue
            except (OSError, SegmentError) as error:
                if is_of_process(error):
                    raise
                content = names[found[min(len(done), len(found) - 1)].number]
                self._leave_out_unread(place, content, repr(error), changes)
                self._failed_in_row.add(place.path.name)
                if len(self._failed_in_row) >= MOST_FAILED:
                    trouble = repr(error)
                continue
            self._failed_in_row.clear()
            self._has_read(place, done)
            if is_use:
                self._touch(place)
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
        done: list[bytes],
    ) -> None:
        """done: takes the names of the blocks that were read, damaged ones too."""
        file = segment.open_file(place.path)
        try:
            for number, record in found:
                name = names[number]
                is_right = segment.read_record(file, name, record, into[number].data)
                is_read[number] = is_right
                done.append(name)
                if not is_right:
                    logger.warning("a block in %s is damaged; it is computed anew", place.path)
                    self._drop(place, name, changes)
        finally:
            os.close(file)

    def _has_read(self, place: _Segment, contents: list[bytes]) -> None:
        with self._lock:
            is_news = self._left_out.has_read(place.path.name, contents)
        if is_news:
            logger.info("%s can be used again", place.path)

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

    def drop(self, names: Sequence[bytes], changes: Changes | None = None) -> Changes:
        """Contents that are wrong, in all groups: the segments that have any are deleted, for all who share them, as
        are those that turn out later to have any. changes: as in `look`."""
        changes, wrong = Changes() if changes is None else changes, set(names)
        for name in names:
            self._wrong.pop(name, None)
            self._wrong[name] = None
        while len(self._wrong) > MOST_WRONG:
            del self._wrong[next(iter(self._wrong))]
        with self._lock:
            found = [at for at, each in self._segments.items() if wrong & each.index.records.keys()]
            found += self._left_out.holders(wrong)
        for at in found:
            self._delete(self.path / at, changes)
        return changes

    def clear(self, changes: Changes | None = None) -> Changes:
        """Deletes all segments of the fingerprint, for all who share them. OSError as the directory has it: then the
        next look deletes what is not open, and finds nothing before that. changes: as in `look`."""
        changes = Changes() if changes is None else changes
        self._is_to_clear = True
        with self._lock:
            found = [each.path for each in self._segments.values()]
        for path in found:
            self._delete(path, changes)
        self._clear_rest(changes)
        return changes

    def _clear_rest(self, changes: Changes) -> None:
        """Deletes segments that are not open: they are left out, or have not been looked at."""
        for entry in self._entries():
            if entry.name.endswith(SUFFIX) and entry.name not in self._segments and _is_file(entry):
                self._delete(Path(entry.path), changes)
        self._is_to_clear = False

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

    def write(self, group: int, payloads: Sequence[Payload], changes: Changes | None = None) -> Changes:
        """Writes a segment, and makes room for it. OSError as the disk has it: then nothing is left of it. changes: as
        in `look`."""
        changes = Changes() if changes is None else changes
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


def _log_left_out(path: Path, what: str, reason: str) -> None:
    logger.warning("%s %s; it is left out, and tried again from time to time: %s", path, what, reason)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself
        return False
