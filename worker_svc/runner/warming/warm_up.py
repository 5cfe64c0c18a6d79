"""The warm-up of a runner on a GPU, once its model is loaded and its graphs are captured."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from worker_svc.core.drafts.drafter import Drafter
from worker_svc.runner.cuda.runner import CudaRunner
from worker_svc.runner.draft_model import DraftModel
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.progress import Progress
from worker_svc.runner.warming.batches import batch_of, columns_of, copies_of, table_of
from worker_svc.runner.warming.compiles import KernelCompiles
from worker_svc.runner.warming.plan import WarmLimits, WarmStep, plan_steps

logger = logging.getLogger(__name__)


def warm_up(runner: CudaRunner, drafter: Drafter | None, most_tokens: int) -> None:
    """Runs each kind of step once, through what runs it in service; from then on a compile counts as late.

    most_tokens: query tokens of the largest step. Nothing of it remains but garbage in blocks and states that requests
    write before they read. ModelLoadError if a step fails.
    """
    started = time.monotonic()
    compiles = KernelCompiles(runner.warm_up)
    compiles.listen()
    steps = plan_steps(limits_of(runner, most_tokens))
    progress = Progress("warm-up", len(steps))
    for step in steps:
        run_step(runner, drafter, step)
        progress.end(step.name)
    run_others(runner)
    runner.forget()
    if runner.model.device.type == "cuda":
        torch.cuda.synchronize(runner.model.device)
    runner.warm_up.seconds += time.monotonic() - started
    compiles.serve()
    logger.info(
        "warm after %.1f s: %d CUDA graphs, %d steps run, for which %d more kernels were compiled, %d loaded from disk",
        runner.warm_up.seconds,
        runner.num_graphs,
        len(steps),
        compiles.num_kernels - compiles.num_from_disk,
        compiles.num_from_disk,
    )


def limits_of(runner: CudaRunner, most_tokens: int) -> WarmLimits:
    """What steps of a runner can be."""
    from worker_svc.runner.triton.attention import SPLIT  # noqa: PLC0415 (Triton is optional)

    info = runner.info
    return WarmLimits(
        num_slots=info.num_slots,
        most_positions=info.max_model_len,
        most_tokens=most_tokens,
        split=SPLIT,
        graph_sizes=runner.decode_sizes,
        num_drafts=info.max_draft_tokens,
        scores_prompts=info.has_prompt_logprobs,
    )


def run_step(runner: CudaRunner, drafter: Drafter | None, step: WarmStep) -> None:
    """Runs a step on the model, and its rows on the draft model, if there is one."""
    with _failing_as(step.name):
        runner.execute(batch_of(step, runner.info, runner.scratch_blocks))
        if isinstance(drafter, DraftModel):
            run_drafts(drafter, step, runner.scratch_blocks[0])


def run_drafts(drafter: DraftModel, step: WarmStep, block: int) -> None:
    """Runs the rows of a step on the draft model, unless its own context is shorter."""
    starts, positions = columns_of(step.rows)
    if positions.max() < drafter.most_positions:
        drafter.rehearse(starts, positions, table_of(step.rows, block, drafter.block_size), len(step.decodes))


def run_others(runner: CudaRunner) -> None:
    """Runs what is done beside steps: copies of blocks, and the check of a model that failed."""
    with _failing_as("copies of blocks"):
        for copy in copies_of(runner.info, runner.scratch_blocks):
            runner.copy_blocks([copy])
    with _failing_as("the check of the model"):
        runner.check()


@contextmanager
def _failing_as(part: str) -> Iterator[None]:
    """Names the part in a ModelLoadError, whatever fails: a request would meet it, too."""
    try:
        yield
    except Exception as error:  # of CUDA, of Triton, or of a model's code
        raise ModelLoadError(f"The warm-up failed in {part!r} ({type(error).__name__}: {error})") from error
