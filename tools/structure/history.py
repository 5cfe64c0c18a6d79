"""Which commits have raised a budget, and whether they may."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tools.structure.budgets import PATH, read_budgets

MOST_COMMITS = 50
"""Newest commits of the file that are looked at."""


def wrong_raises(tree: Path, path: Path = PATH) -> list[str]:
    """One sentence for each commit that has raised a budget of the file at `path` and changes anything else, or has no
    body, and one if the working tree has. Empty where there is no git, or no history."""
    current = _git(tree, "show", f"HEAD:{path}")
    if current is None:
        return []
    found = []
    raised = raised_budgets(read_budgets(current), read_budgets((tree / path).read_text()))
    if raised:
        found.append(f"not committed: raises {', '.join(raised)}; commit it alone, with the measured reason")
    commits = _git(tree, "log", f"--max-count={MOST_COMMITS}", "--format=%H", "--", str(path)) or ""
    for commit in commits.split():
        found += _complaints(tree, path, commit)
    return found


def raised_budgets(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Names of budgets that are higher than they were. One that is new or gone is neither."""
    return sorted(name for name, value in after.items() if value > before.get(name, value))


def _complaints(tree: Path, path: Path, commit: str) -> list[str]:
    before, after = (_git(tree, "show", f"{name}:{path}") for name in (f"{commit}^", commit))
    if before is None or after is None:
        return []
    raised = raised_budgets(read_budgets(before), read_budgets(after))
    if not raised:
        return []
    what = f"{commit[:8]} raises {', '.join(raised)}"
    files = (_git(tree, "diff-tree", "--no-commit-id", "--name-only", "-r", commit) or "").split("\n")
    if [name for name in files if name] != [str(path)]:
        return [f"{what} and changes other files"]
    if not (_git(tree, "show", "--no-patch", "--format=%b", commit) or "").strip():
        return [f"{what} and gives no reason in its body"]
    return []


def _git(tree: Path, *arguments: str) -> str | None:
    """What git prints; None: it fails, or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=tree, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None
