"""Each wait of the services has a row in the table of waits, with a deadline or somebody who watches (H7)."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.test_layout import rules
from tests.waits.ours import HANDED_IN, NO_WAITS
from tests.waits.table import NOBODY, NONE, PAGE, Row, read_rows
from tests.waits.walk import Wait, find_waits
from tools.packages import SERVICES

ROOT = Path(__file__).resolve().parents[2]
SHARED = ("links", "runtime", "telemetry", "board")
FOLDERS = (*SERVICES, *(f"signalbox/{name}" for name in SHARED))


def none_of_ours(wait: Wait) -> str:
    """How `NO_WAITS` names it."""
    return f"{wait.function}: {wait.call}"


@cache
def waits() -> tuple[Wait, ...]:
    return tuple(find_waits(ROOT, FOLDERS, HANDED_IN))


@cache
def rows() -> tuple[Row, ...]:
    return tuple(read_rows(ROOT))


@cache
def names_in_code() -> frozenset[str]:
    """Constants, fields and parameters."""
    text = "\n".join(path.read_text() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return frozenset(re.findall(r"\b(\w+)\b(?=\s*(?::[^=\n]*)?=|,[\w ,]*=|: (?:float|int)|\(self\))", text))


def test_each_wait_has_a_row() -> None:
    placed = {place for row in rows() for place in row.places}
    missing = [
        f"{wait.path}:{wait.line}: {wait.function} waits ({wait.call}). Add to {PAGE}: "
        f"| `{wait.path}` `{wait.function}` | `{wait.call}` | whom it waits for | who watches | `DEADLINE_S` | then |"
        for wait in waits()
        if (wait.path, wait.function, wait.call) not in placed and none_of_ours(wait) not in NO_WAITS
    ]
    assert missing == [], "\n".join(missing)


def test_each_row_has_a_wait() -> None:
    found = {(wait.path, wait.function, wait.call) for wait in waits()}
    gone = [f"{PAGE}:{row.line}: {place}" for row in rows() for place in row.places if place not in found]
    assert gone == [], "no code has these any more:\n" + "\n".join(gone)
    assert sorted(set(NO_WAITS) - {none_of_ours(wait) for wait in waits()}) == []


def test_each_place_is_named_once() -> None:
    places = [place for row in rows() for place in row.places]
    assert [place for place in places if places.count(place) > 1] == []


def test_each_row_says_all_of_it() -> None:
    assert [row.line for row in rows() if not (row.party and row.watcher and row.deadline)] == []
    endless = [row for row in rows() if row.deadline.startswith(NONE) or not has_deadline(row)]
    assert [row.line for row in endless if row.watcher == NOBODY] == [], "neither a deadline nor a watcher"
    silent = [row.line for row in rows() if not row.deadline.startswith(NONE) and not row.then]
    assert silent == [], "what happens at the deadline is not said"


def has_deadline(row: Row) -> bool:
    return bool(row.names) or any(character.isdigit() for character in row.deadline)


def test_deadlines_and_rules_are_there() -> None:
    unknown = [(row.line, name) for row in rows() for name in row.names if name not in names_in_code()]
    assert unknown == [], "no code has such a constant or setting"
    known = set(rules())
    assert [(row.line, rule) for row in rows() for rule in row.rules if rule not in known] == []


def test_there_is_a_table() -> None:
    assert len(waits()) > 150 and len(rows()) > 150


WAYS: dict[str, str] = {
    "async def f(e):\n    await e.wait()\n": "e.wait",
    "async def f(q):\n    async for item in q:\n        pass\n": "q",
    "async def f(stub):\n    await stub.FindLeader(1)\n": "stub.FindLeader",
    "async def f(task):\n    await task\n": "task",
    "async def f(lock):\n    async with lock:\n        pass\n": "lock",
    "async def f():\n    async with asyncio.TaskGroup():\n        pass\n": "asyncio.TaskGroup",
    "def f(t):\n    t.join()\n": "t.join",
    "def f(t):\n    t.join(timeout_s)\n": "t.join",
    "def f(t):\n    t.join(CLOSE_S)\n": "t.join",
    "def f(q):\n    q.get()\n": "q.get",
    "def f(q):\n    q.get(timeout=1)\n": "q.get",
    "def f(x):\n    return x.result(5)\n": "x.result",
    "def f(s):\n    s.recv(1)\n": "s.recv",
    "def f(w):\n    while not w.done:\n        time.sleep(1)\n": "time.sleep",
    "async def f(w):\n    while True:\n        if w():\n            return\n        await sleep(1)\n": "sleep",
    "def f():\n    subprocess.run(['cc'])\n": "subprocess.run",
    "def f(file):\n    fcntl.flock(file, fcntl.LOCK_EX)\n": "fcntl.flock",
    "def f(g):\n    g.stream.synchronize()\n": "g.stream.synchronize",
    "class A:\n    async def f(self):\n        await asyncio.wait_for(self.e.wait(), 1)\n": "asyncio.wait_for",
}
NO_WAYS = (
    "async def f():\n    await g()\n\n\nasync def g():\n    pass\n",
    "async def f():\n    while True:\n        await asyncio.sleep(1)\n",
    "def f(words):\n    return ', '.join(words)\n",
    "def f(d):\n    return d.get('key')\n",
    "v = ContextVar('v')\n\n\ndef f():\n    return v.get()\n",
    "async def f(task):\n    return task.result()\n",
    "def f(file):\n    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
    "async def f():\n    await asyncio.to_thread(print)\n",
)


@pytest.fixture
def walked(tmp_path: Path) -> Callable[[str], list[str]]:
    def walk(text: str) -> list[str]:
        (tmp_path / "svc").mkdir(exist_ok=True)
        (tmp_path / "svc" / "a.py").write_text(text)
        return [wait.call for wait in find_waits(tmp_path, ["svc"], HANDED_IN)]

    return walk


@pytest.mark.parametrize("text", WAYS)
def test_what_waits_is_found(walked: Callable[[str], list[str]], text: str) -> None:
    assert walked(text) == [WAYS[text]]


@pytest.mark.parametrize("text", NO_WAYS)
def test_what_does_not_is_left_out(walked: Callable[[str], list[str]], text: str) -> None:
    ast.parse(text)
    assert walked(text) == []
