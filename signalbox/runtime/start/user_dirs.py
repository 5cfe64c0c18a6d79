"""The directories of a user for what outlives a process, as the XDG base directory specification says."""

from __future__ import annotations

import os
from pathlib import Path

from signalbox.errors import StartupError


def cache_dir() -> Path:
    """`$XDG_CACHE_HOME/signalbox`, or ~/.cache instead of the variable. Raises StartupError when there is neither."""
    return _root("XDG_CACHE_HOME", ".cache") / "signalbox"


def state_dir() -> Path:
    """`$XDG_STATE_HOME/signalbox`, or ~/.local/state instead of the variable. Raises StartupError when there is
    neither."""
    return _root("XDG_STATE_HOME", ".local/state") / "signalbox"


def expand_user(path: Path) -> Path:
    """The path with `~` replaced. Raises StartupError when that user has no home directory."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise StartupError(f"{path} names the home directory of a user who has none") from None


def has_home() -> bool:
    """Whether this user has a home directory, be it there or not."""
    try:
        return Path.home().is_absolute()
    except RuntimeError:  # HOME is not set, and the user id has no entry in the table of users
        return False


def _root(variable: str, below_home: str) -> Path:
    base = os.environ.get(variable, "")
    if base.startswith("/"):  # the specification: a relative path there is to be ignored
        return Path(base)
    if not has_home():
        raise StartupError(f"this user has no home directory: set HOME or {variable} to an absolute path")
    return Path.home() / below_home
