"""What is kept under the directory of files and batches, and by whom. Everything here blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from frontend_svc.batches.ids import is_batch_id, is_file_id


@dataclass
class TenantUsage:
    """What one tenant keeps."""

    num_bytes: int = 0
    ids: set[str] = field(default_factory=set)
    """Its files and batches."""

    @property
    def num_files(self) -> int:
        """Files that are whole, or are being written here."""
        return sum(map(is_file_id, self.ids))

    @property
    def num_batches(self) -> int:
        """Batches, ended ones included."""
        return sum(map(is_batch_id, self.ids))


@dataclass
class Usage:
    """What all keep."""

    num_bytes: int = 0
    """Bytes of all files, those with several names once."""
    of_tenants: dict[str, TenantUsage] = field(default_factory=dict)


class UsageMeter:
    """Measures one directory. Whose something is never changes, and so is read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._owners: dict[str, str] = {}
        """Tenants of files and batches, by id."""

    def note(self, name: str, tenant: str) -> None:
        """Something begins here whose owner nobody could read yet."""
        self._owners[name] = tenant

    def measure(self) -> Usage:
        """Raises OSError: what cannot be listed is not taken for empty. What is written by another process counts for
        nobody until it is whole, but in the sum of all."""
        usage, seen = Usage(), set[int]()
        owners: dict[str, str] = {}
        for name, path in self._files():
            try:
                status = path.lstat()
            except FileNotFoundError:  # it went meanwhile
                continue
            num_bytes = 0 if status.st_ino in seen else status.st_size
            seen.add(status.st_ino)
            usage.num_bytes += num_bytes
            owner = owners.get(name)
            if owner is None and (owner := self._owner_of(name)) is None:
                continue
            owners[name] = owner
            mine = usage.of_tenants.setdefault(owner, TenantUsage())
            mine.num_bytes += num_bytes
            mine.ids.add(name)
        self._owners = owners
        return usage

    def _files(self) -> Iterator[tuple[str, Path]]:
        """(id of the file or batch that it belongs to, path)."""
        for path in _entries(self._root / "files"):
            yield path.name.lstrip(".").partition(".")[0], path
        for folder in _entries(self._root / "batches"):
            if folder.is_dir():
                for path in _entries(folder):
                    yield folder.name.lstrip("."), path

    def _owner_of(self, name: str) -> str | None:
        """None: nobody can say yet."""
        if (known := self._owners.get(name)) is not None:
            return known
        is_file = is_file_id(name)
        if not (is_file or is_batch_id(name)):
            return None
        path = (
            self._root / "files" / f"{name}.json" if is_file else self._root / "batches" / name / "batch.json"
        )
        try:
            tenant = orjson.loads(path.read_bytes())["tenant"]
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return tenant if isinstance(tenant, str) else None


def _entries(folder: Path) -> list[Path]:
    """Nothing for a folder that is not there, or went meanwhile."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
