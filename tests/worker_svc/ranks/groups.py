"""Real groups of ranks, for tests: rank 0 is this process, the others are its children."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.worker_svc.drafting.local_ring import LocalRing
from tests.worker_svc.runner.reference import EPSILON, assert_near_the_best, load_reference, make_prompts
from worker_svc.config import WorkerSettings
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.ranks.runners import LeadingRunner
from worker_svc.runner_factory import make_runner

DEVICE = os.environ.get("SIGNALBOX_TEST_DEVICE", "cpu")
"""cuda: where there is a GPU for each rank (docs/performance.md, Several GPUs)."""


def settings_for(path: Path, **changes: Any) -> WorkerSettings:
    options: dict[str, Any] = {
        "model": path,
        "dtype": "float32",
        "num_blocks": 256,
        "block_size": 4,
        "num_slots": 16,
        "threads": 1,
        "tensor_parallel": 2,
        "device": DEVICE,
    }
    settings = options | changes
    if DEVICE == "cuda":
        settings.pop("collectives", None)  # theirs are NCCL's
    return WorkerSettings(**settings)


@contextmanager
def group(path: Path, **changes: Any) -> Iterator[tuple[LeadingRunner, Drafter | None]]:
    """The runner of rank 0, and what makes its drafts."""
    runner, drafter = make_runner(settings_for(path, **changes))
    assert isinstance(runner, LeadingRunner)
    try:
        yield runner, drafter
    finally:
        runner.close()


Groups = Callable[..., tuple[LeadingRunner, Drafter | None]]


@contextmanager
def kept_groups() -> Iterator[Groups]:
    """A callable like `group`, whose groups stay, for whoever asks for one of the same model and settings. Not for
    tests that end them."""
    made: dict[tuple[Path, str], tuple[LeadingRunner, Drafter | None]] = {}
    with ExitStack() as stack:

        def get(path: Path, **changes: Any) -> tuple[LeadingRunner, Drafter | None]:
            key = path, repr(sorted(changes.items()))
            if key not in made:
                made[key] = stack.enter_context(group(path, **changes))
            return made[key]

        yield get


def assert_transformers_own(path: Path, runner: LeadingRunner) -> LocalRing:
    """Greedy tokens of a few prompts are those of the model in `path`. Returns the ring that they were played on."""
    ring = LocalRing(runner, None, depth=2, num_seqs=4)
    clients = [ring.submit(prompt, 12) for prompt in make_prompts((17, 40, 5))]
    ring.run()
    reference = load_reference(path)
    ties = sum(assert_near_the_best(reference, client.prompt, client.output, EPSILON) for client in clients)
    assert ties <= 1
    return ring
