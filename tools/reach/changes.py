"""Finds the files that changed in a checkout, by git."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from subprocess import CalledProcessError

from tools.reach.tree import git

UPSTREAM = "origin/main"


class NoBaseError(Exception):
    """There is nothing to compare a checkout with; the message says why."""


@dataclass(frozen=True)
class Change:
    """What differs from a commit: uncommitted and untracked files too; renamed ones by both names."""

    base: str
    paths: frozenset[str]


def read_change(root: Path, base: str = "") -> Change:
    """What has changed since `base`; if empty, since the merge base with origin/main, or since the commit before where
    that is HEAD itself. Raises NoBaseError without git, a remote or an earlier commit."""
    try:
        inside = git(root, "rev-parse", "--show-toplevel").strip()
    except (CalledProcessError, FileNotFoundError):
        raise NoBaseError("this is no checkout of git") from None
    if Path(inside).resolve() != root.resolve():
        raise NoBaseError("this is no checkout of git")
    commit = _commit(root, base) if base else _branch_point(root)
    differing = git(root, "diff", "--name-only", "--no-renames", "-z", commit)
    untracked = git(root, "ls-files", "-z", "--others", "--exclude-standard")
    return Change(commit[:12], frozenset(path for path in (differing + untracked).split("\0") if path))


def head_of(root: Path) -> str:
    """The commit that is checked out; empty where there is none."""
    try:
        return git(root, "rev-parse", "HEAD").strip()
    except (CalledProcessError, FileNotFoundError):
        return ""


def _branch_point(root: Path) -> str:
    try:
        commit = git(root, "merge-base", "HEAD", UPSTREAM).strip()
    except CalledProcessError:
        raise NoBaseError(f"there is no {UPSTREAM} to compare with") from None
    return commit if commit != head_of(root) else _commit(root, "HEAD~1")


def _commit(root: Path, name: str) -> str:
    try:
        return git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()
    except CalledProcessError:
        raise NoBaseError(f"there is no commit {name}") from None
