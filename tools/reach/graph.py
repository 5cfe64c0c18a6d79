"""The graph of files: an edge leads from a file to one that it imports or names.

An edge into a *root*, a file that wires a whole service together, is kept apart: it reaches everything in the service
and says nothing about which part of it a test is about (tools/reach/rules.py)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from tools.packages import PRODUCT
from tools.reach.rules import is_root
from tools.reach.source import Source
from tools.reach.tree import Tree

TEST = re.compile(r"tests/(.*/)?test_[^/]*\.py")
NAMES_NOTHING = ("tools/reach/", "tests/zygote/")
"""Folders that all tests use, and whose strings name what some of them start or read; their imports count."""


class Graph:
    """Reversed edges between the files of a tree; files that were deleted may be given as well."""

    def __init__(self, tree: Tree, deleted: Iterable[str] = ()) -> None:
        self.paths = tree.paths | frozenset(deleted)
        self._sources = dict(tree.sources)
        self._below = _by_folder(self.paths)
        self._users: dict[str, set[str]] = defaultdict(set)
        self._root_users: dict[str, set[str]] = defaultdict(set)
        for path, source in self._sources.items():
            for other in self._named(path, source):
                self._add(path, other)
            for program in self._programs(source):
                # A service that names itself does not start itself.
                if _top(path) == "tests" and not path.startswith(NAMES_NOTHING):
                    self._add(path, program)
        self.tests = sorted(path for path in self._sources if TEST.fullmatch(path))

    def users_of(self, changed: Iterable[str], service: str = "") -> set[str]:
        """`changed` and all files that lead to them; through the roots of `service` as well, if it is given."""
        seen = set(changed)
        todo = list(seen)
        while todo:
            path = todo.pop()
            users = self._users[path]
            if service and _top(path) == service:
                users = users | self._root_users[path]
            new = users - seen
            seen |= new
            todo += new
        return seen

    def start_whole_services(self) -> set[str]:
        """Tests outside the mirrors of services that lead to a root."""
        direct = {user for users in self._root_users.values() for user in users}
        in_mirrors = tuple(f"tests/{service}/" for service in PRODUCT)
        return {test for test in self.users_of(direct) & set(self.tests) if not test.startswith(in_mirrors)}

    def _add(self, path: str, other: str) -> None:
        if path == other:
            return
        is_inside = _top(path) in PRODUCT and _top(path) == _top(other)
        users = self._root_users if is_root(other) and not is_inside else self._users
        users[other].add(path)

    def _named(self, path: str, source: Source) -> Iterator[str]:
        for name in source.imports:
            yield from self._module(name)
        if not path.startswith(NAMES_NOTHING):
            yield from self._in_strings(path, source)
        if path.startswith("tests/"):
            yield from self._conftests(PurePosixPath(path).parent, path, source)

    def _in_strings(self, path: str, source: Source) -> Iterator[str]:
        for text in source.modules:
            if text.endswith("."):  # import_module(f"package.{name}")
                prefix = text.replace(".", "/")
                yield from (other for other in self._below[prefix[:-1]] if other.endswith(".py"))
            elif "." in text:
                yield from self._module(text.partition(":")[0])
        folder = PurePosixPath(path).parent
        for text in source.files:
            yield from self._at(folder, text, can_be_folder="/" in text)
        for text in source.folders:
            yield from self._at(folder, text, can_be_folder=True)

    def _module(self, name: str) -> Iterator[str]:
        """Yields the file of the longest prefix of `name` that is a module, and the `__init__` files above it."""
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            stem = "/".join(parts[:end])
            found = [path for path in (f"{stem}.py", f"{stem}/__init__.py") if path in self.paths]
            if found:
                yield from found
                yield from self._packages(parts[: end - 1])
                return

    def _packages(self, parts: list[str]) -> Iterator[str]:
        for end in range(1, len(parts) + 1):
            if (path := "/".join([*parts[:end], "__init__.py"])) in self.paths:
                yield path

    def _programs(self, source: Source) -> Iterator[str]:
        """What `python -m NAME`, and a command of that name, runs."""
        for text in source.modules:
            path = text.replace("-", "_").replace(".", "/") + "/__main__.py"
            if path in self.paths:
                yield path

    def _at(self, folder: PurePosixPath, text: str, *, can_be_folder: bool) -> Iterator[str]:
        """A file, or what a folder has besides Python, below the root, the folder of the source or one above it. Tests
        are named where they are listed, not read."""
        name = text.strip("/")
        for base in ("", *(f"{above}/" for above in (folder, *folder.parents) if str(above) != ".")):
            path = f"{base}{name}"
            if path in self.paths and not TEST.fullmatch(path):
                yield path
            elif can_be_folder:
                yield from (other for other in self._below.get(path, ()) if not other.endswith(".py"))

    def _conftests(self, folder: PurePosixPath, path: str, source: Source) -> Iterator[str]:
        """Each conftest.py above, if it has something for all tests or a fixture that is asked for."""
        for above in (folder, *folder.parents):
            conftest = f"{above}/conftest.py"
            if conftest == path or conftest not in self._sources:
                continue
            found = self._sources[conftest]
            if found.is_for_all or set(found.defines) & set(source.asks):
                yield conftest


def mirrors(test: str, service: str) -> bool:
    """Whether a test is in the folder of tests of a service."""
    return test.startswith(f"tests/{service}/")


def _top(path: str) -> str:
    return path.partition("/")[0]


def _by_folder(paths: Iterable[str]) -> dict[str, set[str]]:
    below: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        for folder in PurePosixPath(path).parents:
            below[str(folder)].add(path)
    return below
