"""Swaps modules of a loaded model for faster ones, and proves that its logits stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch

from worker_svc.runner.attention.attention import PagedBatch
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.loading import LoadedModel
from worker_svc.runner.model.probe import check_paged_attention, eager_logits
from worker_svc.runner.split.split import Split


def fuse_checked(
    model: LoadedModel,
    block_size: int,
    swap: Callable[[], None],
    *,
    prepare: Callable[[], None] = lambda: None,
    batch_class: type[PagedBatch] = PagedBatch,
) -> Exception | None:
    """Lets `swap` put faster modules into the model, and compares logits through `batch_class` with those ahead of it.

    `prepare`: what is to be done ahead of both. Returns what failed, whatever it is: the model's own modules may still
    do. All ranks take the same way out (RK2): where they cannot hear of each other any more, that is raised.
    """
    failure: Exception | None = None
    expected: torch.Tensor | None = None
    split = model.split
    try:
        prepare()
        expected = eager_logits(model)
        with nullcontext() if split is None else split.swapping():
            swap()
    except Exception as error:
        failure = error.with_traceback(None)  # which would keep the model, and its memory
    failure = _of_all(failure, split)
    if failure is not None:
        return failure
    try:
        check_paged_attention(model, block_size, expected, batch_class)
    except Exception as error:
        failure = error.with_traceback(None)
    return _of_all(failure, split)


def _of_all(failure: Exception | None, split: Split | None) -> Exception | None:
    """The failure, here or at another rank."""
    if split is None or split.ranks.agree(failure is None):
        return failure
    return failure or ModelLoadError("another rank's part cannot be fused")
