"""What an event loop runs: the name and the place of a callback."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[2]


def describe(callback: Callable[..., Any]) -> tuple[str, str]:
    """Qualified name and file:line; those of the coroutine where the callback is a step of a task."""
    owner = getattr(callback, "__self__", None)
    coroutine = owner.get_coro() if hasattr(owner, "get_coro") else None
    if coroutine is not None:
        code = getattr(coroutine, "cr_code", None) or getattr(coroutine, "gi_code", None)
        return getattr(coroutine, "__qualname__", repr(coroutine)), _place_of(code)
    function = inspect.unwrap(getattr(callback, "func", callback))
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return name, _place_of(getattr(function, "__code__", None))


def stack_of(frame: FrameType | None, depth: int = 8) -> list[str]:
    """Places that a thread is at, the innermost first: all frames of this project, and the innermost of any."""
    places: list[str] = []
    while frame is not None and len(places) < depth:
        path, is_first = frame.f_code.co_filename, not places
        if is_first or (path.startswith(str(ROOT)) and not _is_foreign(path)):
            places.append(f"{_short(path)}:{frame.f_lineno} {frame.f_code.co_qualname}")
        frame = frame.f_back
    return places


def _place_of(code: CodeType | None) -> str:
    return f"{_short(code.co_filename)}:{code.co_firstlineno}" if code is not None else "built in"


def _short(path: str) -> str:
    return path.removeprefix(f"{ROOT}/").rpartition("site-packages/")[2]


def _is_foreign(path: str) -> bool:
    return "site-packages" in path or path.startswith(str(Path(__file__).parent))
