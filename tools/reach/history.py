"""Whether past fixes reach the tests that came with them, by the product's part of their diffs alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.packages import PRODUCT
from tools.reach.choice import choose, is_source
from tools.reach.graph import TEST
from tools.reach.tree import git, read_commit

WORDS = re.compile(
    r"\b(mend\w*|fix\w*|bugs?|no|not|no longer|nothing|nobody|never|wrong\w*|crash\w*|hang\w*|lost|fail\w*|faults?"
    r"|broken|break\w*|refus\w*|too|dead|dies|died|doubled?|instead)\b",
    re.IGNORECASE,
)
"""One of these is in the subject of a fix."""
MOST_FILES = 10
"""Files of the product that a fix changes at most; more are a feature or a move."""


@dataclass(frozen=True)
class Fix:
    """A commit that changed the product and tests."""

    commit: str
    subject: str
    product: tuple[str, ...]
    tests: tuple[str, ...]
    """Test files that it added or changed."""


@dataclass(frozen=True)
class Verdict:
    """What the product's part of a fix selects in the tree of its commit."""

    fix: Fix
    selected: int
    of: int
    missed: tuple[str, ...]
    """Tests that came with it and are not selected."""


def judge(root: Path, num_fixes: int, until: str = "HEAD") -> Iterator[Verdict]:
    """The last fixes until a commit, newest first."""
    for fix, _ in zip(fixes(root, until), range(num_fixes), strict=False):
        tree = read_commit(root, fix.commit)
        choice = choose(tree, fix.product)
        missed = tuple(test for test in fix.tests if test in choice.left_out)
        yield Verdict(fix, len(choice.selected), len(choice.selected | choice.left_out), missed)


def fixes(root: Path, until: str) -> Iterator[Fix]:
    """Commits whose subject has one of WORDS, that changed 1 to MOST_FILES files of the product and a test file."""
    log = git(root, "log", "--no-merges", "--no-renames", "--name-status", "--format=%x01%h%x02%s%x03", until)
    for record in log.split("\x01")[1:]:
        head, _, rows = record.partition("\x03")
        commit, _, subject = head.partition("\x02")
        changed = [row.split("\t") for row in rows.strip().splitlines()]
        product = tuple(path for _, path in changed if path.partition("/")[0] in PRODUCT)
        tests = tuple(path for status, path in changed if TEST.fullmatch(path) and status != "D")
        is_small = 1 <= len(product) <= MOST_FILES and any(map(is_source, product))
        if is_small and tests and WORDS.search(subject):
            yield Fix(commit, subject, product, tests)
