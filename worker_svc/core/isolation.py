"""Runs a batch so that one bad request fails alone."""

from __future__ import annotations

import logging

import numpy as np

from worker_svc.core.batch import Batch, BlockCopy, ModelRunner, Sampled

logger = logging.getLogger(__name__)


def run_step(runner: ModelRunner, copies: list[BlockCopy], batch: Batch) -> tuple[Sampled, dict[int, str]]:
    """Makes the copies, then executes `batch`. When a copy fails, nobody knows what the cache holds: all rows fail."""
    try:
        if copies:
            runner.copy_blocks(copies)
    except Exception as error:
        logger.exception("block copies failed")
        message = f"block copies failed ({type(error).__name__}: {error})"
        rows = range(len(batch.slots))
        return Sampled(np.zeros(len(batch.sample_index), np.int32)), dict.fromkeys(rows, message)
    return execute_isolated(runner, batch)


def execute_isolated(runner: ModelRunner, batch: Batch) -> tuple[Sampled, dict[int, str]]:
    """Executes `batch`; when that fails, halves it until the rows that make it fail stand alone.

    Running a row again is harmless: it writes the same KV at the same positions. Returns the samples (0 for those of
    failed rows) and the failed rows with what they raised.
    """
    if not len(batch.slots):
        return Sampled(np.empty(0, np.int32)), {}
    try:
        return runner.execute(batch), {}
    except Exception as error:
        rows = len(batch.slots)
        if rows == 1:
            logger.exception("a request failed in the model")
            return Sampled(np.zeros(len(batch.sample_index), np.int32)), {
                0: f"{type(error).__name__}: {error}"
            }
    half = rows // 2
    first, failed_first = execute_isolated(runner, batch.rows(0, half))
    second, failed_second = execute_isolated(runner, batch.rows(half, rows))
    offset = len(first.token_ids)
    logprobs = first.logprobs | {offset + sample: value for sample, value in second.logprobs.items()}
    failed = failed_first | {half + row: message for row, message in failed_second.items()}
    return Sampled(np.concatenate((first.token_ids, second.token_ids)), logprobs), failed
