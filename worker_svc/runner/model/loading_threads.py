"""Threads that make weights: transformers asks for several at a time, each in a thread of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers.core_model_loading import GLOBAL_WORKERS


@contextmanager
def sharing_threads() -> Iterator[None]:
    """Divides torch's threads among those that load: each of these would have a team of all of them, whose members wait
    for one another while others have their cores."""
    before = torch.get_num_threads()
    # A thread that begins takes what was set last, by whomever.
    torch.set_num_threads(max(1, before // GLOBAL_WORKERS))
    try:
        yield
    finally:
        torch.set_num_threads(before)
