"""Real groups of ranks, for tests: rank 0 is this process, the others are its children."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from worker_svc.config import WorkerSettings
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.ranks.runners import LeadingRunner
from worker_svc.runner_factory import make_runner


def settings_for(path: Path, **changes: Any) -> WorkerSettings:
    options: dict[str, Any] = {
        "model": path,
        "dtype": "float32",
        "num_blocks": 256,
        "block_size": 4,
        "num_slots": 16,
        "threads": 1,
        "tensor_parallel": 2,
    }
    return WorkerSettings(**(options | changes))


@contextmanager
def group(path: Path, **changes: Any) -> Iterator[tuple[LeadingRunner, Drafter | None]]:
    """The runner of rank 0, and what makes its drafts."""
    runner, drafter = make_runner(settings_for(path, **changes))
    assert isinstance(runner, LeadingRunner)
    try:
        yield runner, drafter
    finally:
        runner.close()
