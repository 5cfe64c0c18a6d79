"""Loads a model for a GPU, or for Triton's interpreter: with the kernels that can be launched there."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import torch

from worker_svc.runner.attention.attention import PagedBatch
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.fusing import fuse_checked
from worker_svc.runner.model.kept_weights import ROUNDED_BITS, Quantization
from worker_svc.runner.model.llama4 import check_chunks
from worker_svc.runner.model.loading import LoadedModel, load_model
from worker_svc.runner.model.probe import check_paged_attention
from worker_svc.runner.split.known_states import learn_states
from worker_svc.runner.split.split import Split

logger = logging.getLogger(__name__)


def load_for_gpu(
    path: Path,
    attention: str,
    *,
    dtype: str,
    device: str,
    quantization: Quantization,
    block_size: int,
    max_model_len: int | None,
    split: Split | None = None,
) -> tuple[LoadedModel, type[PagedBatch]]:
    """The model, with fused modules if these give the same logits, else as it is; and whose kernels read its cache.

    attention: auto (Triton's kernels on a GPU), any (torch's, row by row, where Triton's cannot run) or triton (also
    elsewhere). The rest is as for `TorchRunner`. ModelLoadError where it cannot be served so.
    """
    if quantization in ROUNDED_BITS:
        raise ModelLoadError(f"quantization {quantization} is served by the kernels of a CPU only.")
    load = partial(load_model, path, dtype=dtype, device=device, max_model_len=max_model_len, split=split)
    model = load()
    learn_states(model)
    batch_class = batch_class_for(attention, model.device)
    if split is not None and not split.everyone.agree(batch_class is not PagedBatch):
        batch_class = PagedBatch  # all ranks take the same way (RK2)
    if batch_class is PagedBatch:
        check_chunks(model.module, block_size)
    else:
        from worker_svc.runner.cuda.experts import serve_experts  # noqa: PLC0415 (Triton is optional)
        from worker_svc.runner.triton.fused import fuse  # noqa: PLC0415

        serve_experts(model.module)
        failure = fuse_checked(model, block_size, partial(fuse, model.module), batch_class=batch_class)
        if failure is None:
            return model, batch_class
        logger.warning("The model runs without fused modules, which is slower: %s", failure)
        del model  # a device may have no room for two
        model = load()
        serve_experts(model.module)
        learn_states(model)
    check_paged_attention(model, block_size, batch_class=batch_class)
    return model, batch_class


def batch_class_for(attention: str, device: torch.device) -> type[PagedBatch]:
    """Whose kernels run: Triton's, or torch's, row by row.

    attention: auto, any or triton, as for `load_for_gpu`. ModelLoadError where Triton's kernels have to run and cannot.
    """
    if attention != "triton" and device.type != "cuda":
        return PagedBatch
    problem = _triton_problem(device)
    if problem is None:
        from worker_svc.runner.triton.batch import TritonBatch  # noqa: PLC0415 (Triton is optional)

        return TritonBatch
    if attention == "any":
        logger.warning("%s: attention runs row by row, which is slow on a GPU.", problem)
        return PagedBatch
    advice = "" if attention == "triton" else " Set --allow-slow-kernels to serve without Triton's kernels."
    raise ModelLoadError(f"{problem}.{advice}")


def _triton_problem(device: torch.device) -> str | None:
    """Why Triton's kernels cannot run on `device`; None: they can."""
    try:
        from worker_svc.runner.triton.batch import check_usable  # noqa: PLC0415
        from worker_svc.runner.triton.launch import launch_error  # noqa: PLC0415
    except ImportError:
        return "The package triton, whose kernels a GPU needs, is not installed"
    check_usable(device)
    error = launch_error(device)
    return None if error is None else f"Triton cannot launch a kernel: {error}"
