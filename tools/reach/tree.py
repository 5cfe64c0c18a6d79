"""The files of a checkout or of a commit, and what their Python sources name; read sources are kept by their digest."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.reach import source
from tools.reach.source import Source, read_source

CACHE = ".pytest_cache/reach.json"


@dataclass(frozen=True)
class Tree:
    """Paths from the root of all files, and the sources of those in Python."""

    paths: frozenset[str]
    sources: Mapping[str, Source]


def make_tree(texts: Mapping[str, str]) -> Tree:
    """A tree of files and their content."""
    packages = packages_of(texts)
    python = {path: read_source(text, packages) for path, text in texts.items() if path.endswith(".py")}
    return Tree(frozenset(texts), python)


def packages_of(paths: Iterable[str]) -> frozenset[str]:
    """Folders at the root that have Python files."""
    return frozenset(path.partition("/")[0] for path in paths if path.endswith(".py") and "/" in path)


def read_checkout(root: Path) -> Tree:
    """What is in the working tree, ignored files left out. Raises CalledProcessError where there is no git."""
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    paths = frozenset(path for path in listed if path and (root / path).is_file())
    return _read(root, paths, {path: (root / path).read_bytes() for path in paths if path.endswith(".py")})


def read_commit(root: Path, commit: str) -> Tree:
    """What a commit has. Raises CalledProcessError for one that is not there."""
    rows = [row.split("\t", 1) for row in git(root, "ls-tree", "-rz", commit).split("\0") if row]
    blobs = {path: head.split()[2] for head, path in rows}
    python = {path: blob for path, blob in blobs.items() if path.endswith(".py")}
    return _read(
        root, frozenset(blobs), dict(zip(python, _contents(root, list(python.values())), strict=True))
    )


def git(root: Path, *arguments: str) -> str:
    """What git prints. Raises CalledProcessError where it fails, FileNotFoundError where it is not installed."""
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _contents(root: Path, blobs: list[str]) -> list[bytes]:
    command = ["git", "-C", str(root), "cat-file", "--batch"]
    output = subprocess.run(command, input="\n".join(blobs).encode(), check=True, capture_output=True).stdout
    contents, at = [], 0
    for _ in blobs:
        start = output.index(b"\n", at) + 1
        size = int(output[at:start].split()[2])
        contents.append(output[start : start + size])
        at = start + size + 1
    return contents


def _read(root: Path, paths: frozenset[str], contents: Mapping[str, bytes]) -> Tree:
    packages = packages_of(paths)
    cache = _Cache(root / CACHE, packages)
    sources = {path: cache.read(content) for path, content in contents.items()}
    cache.save()
    return Tree(paths, sources)


class _Cache:
    """Sources by the digest of their content, of this version of the reader."""

    def __init__(self, path: Path, packages: frozenset[str]) -> None:
        self._path, self._packages = path, packages
        reader = Path(source.__file__).read_bytes()
        self._reader = hashlib.sha256(reader + repr(sorted(packages)).encode()).hexdigest()
        self._rows: dict[str, dict[str, Any]] = {}
        self._used: set[str] = set()
        self._is_changed = False
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored["reader"] == self._reader:
                self._rows = stored["sources"]
        except (OSError, ValueError, KeyError, TypeError):
            pass  # it is made anew

    def read(self, content: bytes) -> Source:
        """Parses a file. One that cannot be parsed has no names: importing it fails anyway."""
        digest = hashlib.sha256(content).hexdigest()
        self._used.add(digest)
        if digest not in self._rows:
            try:
                found = read_source(content.decode(), self._packages)
            except (SyntaxError, UnicodeDecodeError, ValueError):
                found = Source()
            self._rows[digest] = {name: value for name, value in asdict(found).items() if value}
            self._is_changed = True
        row: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in self._rows[digest].items()
        }
        return Source(**row)

    def save(self) -> None:
        """Keeps what was used since the start, where the folder can be written."""
        if not self._is_changed:
            return
        rows = {digest: self._rows[digest] for digest in self._used}
        try:
            self._path.parent.mkdir(exist_ok=True)
            part = self._path.with_suffix(".part")
            part.write_text(json.dumps({"reader": self._reader, "sources": rows}), encoding="utf-8")
            part.replace(self._path)
        except OSError:
            pass  # the next run parses again
