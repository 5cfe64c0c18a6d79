"""The step thread outlives whoever asks it."""

from __future__ import annotations

import queue

from worker_svc.core.batch import RunnerInfo
from worker_svc.core.worker_core import WorkerCore
from worker_svc.runner.sim import SimRunner
from worker_svc.step_loop import StepLoop, StepResult

INFO = RunnerInfo("sim", num_blocks=8, block_size=4, max_model_len=32, vocab_size=100, eos_token_ids=())


def test_a_snapshot_that_nobody_waits_for_any_more_ends_nothing() -> None:
    results = queue.SimpleQueue[StepResult]()
    loop = StepLoop(WorkerCore(INFO, num_slots=4), SimRunner(INFO), results.put, lambda reason: None)
    assert loop.snapshot().cancel()
    later = loop.snapshot()
    loop.start()
    assert later.result(10) is None
    loop.stop(10)
    assert loop.failure is None
