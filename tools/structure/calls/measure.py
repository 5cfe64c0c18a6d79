"""Calls of steady steps and of a token, of each kind of worker.

PYTHONHASHSEED=0 python -m tools.structure.calls.measure    # the counts as one JSON object
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tools.packages import PRODUCT, UNCOUNTED
from tools.structure.calls import frontend, ring
from tools.structure.calls.counting import CallCounter, Kind

PYTHON = (3, 11)
"""The version whose calls are counted: others inline what it calls."""


def call_counts(kinds: Iterable[Kind] = Kind) -> dict[str, int]:
    """Counts by name, `calls.PART.KIND.NUMBER`."""
    counter = CallCounter(PRODUCT, UNCOUNTED)
    by_kind = {
        kind: {**ring.measure(kind, counter), "token": frontend.measure(kind, counter)} for kind in kinds
    }
    return {
        f"calls.{part}.{kind.value}.{number}": value
        for part in (*ring.PARTS, "token")
        for kind, counts in by_kind.items()
        for number, value in counts[part]._asdict().items()
    }


def count_in_fresh_process(tree: Path) -> dict[str, int]:
    """The counts of a checkout, by its own code: neither imports nor the order of sets of this process matter.

    Raises CalledProcessError.
    """
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "tools.structure.calls.measure"]
    done = subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    counts: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return counts


if __name__ == "__main__":
    print(json.dumps(call_counts()))
