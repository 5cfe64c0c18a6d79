"""What becomes of a pipeline when a stage fails, dies or is stopped (RK5, RK14)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from signalbox.v1 import ranks_pb2
from tests.worker_svc.ranks.groups import group
from tests.worker_svc.ranks.test_group_faults import LIMIT_S, ends_in_time, make_batch, other
from tools.make_random_model import make_model
from worker_svc.core.batch import Batch
from worker_svc.core.faults.isolation import execute_isolated
from worker_svc.ranks.pipeline import PipelineRunner

pytestmark = pytest.mark.timeout(120)
PROMPTS = [[5, 6, 7], [8, 9], [10, 11, 12]]


@contextmanager
def two_stages(path: Path) -> Iterator[PipelineRunner]:
    make_model("tiny-llama", path, seed=1)
    with group(path, tensor_parallel=1, pipeline_parallel=2) as (runner, _):
        assert isinstance(runner, PipelineRunner)
        yield runner


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[PipelineRunner]:
    with two_stages(tmp_path) as runner:
        yield runner


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipelineRunner]:
    """For tests that do not end it."""
    with two_stages(tmp_path_factory.mktemp("model")) as runner:
        yield runner


def test_what_the_first_stage_fails_in_fails_alone(lasting: PipelineRunner) -> None:
    """RK14: the one behind has made the call, too, and gets on with the next."""
    runner = lasting
    batch = make_batch(runner, PROMPTS)
    wanted = execute_isolated(runner, batch)[0].token_ids
    batch.token_ids[batch.query_starts[1]] = runner.info.vocab_size + 5
    sampled, failed = execute_isolated(runner, batch)
    assert list(failed) == [1]
    assert sampled.token_ids[[0, 2]].tolist() == wanted[[0, 2]].tolist()
    assert runner.failure is None


def test_what_the_last_stage_fails_in_fails_alone(
    lasting: PipelineRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RK14: it is told of a query token that there is not, wherever a certain row takes part."""
    runner = lasting
    batch = make_batch(runner, PROMPTS)
    wanted = execute_isolated(runner, batch)[0].token_ids
    culprit, write = int(batch.slots[1]), runner._codec.write_batch

    def write_wrongly(part: Batch) -> ranks_pb2.RankBatch:
        message = write(part)
        if culprit in part.slots:
            message.sample_index = np.array([1 << 20], "<i4").tobytes()
        return message

    monkeypatch.setattr(runner._codec, "write_batch", write_wrongly)
    sampled, failed = execute_isolated(runner, batch)
    assert list(failed) == [1] and "IndexError" in failed[1]
    assert sampled.token_ids[[0, 2]].tolist() == wanted[[0, 2]].tolist()
    assert runner.failure is None


def test_batches_on_their_way_are_collected_in_order(lasting: PipelineRunner) -> None:
    """RK13: as many as there are stages, and a call that takes its turn behind them."""
    runner = lasting
    batches = [make_batch(runner, [prompt]) for prompt in PROMPTS]
    wanted = [runner.execute(batch).token_ids.tolist() for batch in batches]
    none = np.zeros(1, np.bool_)
    launched = [runner.launch(batch, none) for batch in batches]
    runner.check()
    assert all(each.is_done for each in launched)
    assert [runner.collect(each).token_ids.tolist() for each in launched] == wanted


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_stage_that_dies_or_is_stopped_ends_all(runner: PipelineRunner, number: signal.Signals) -> None:
    """RK5: with a batch on its way, and between steps."""
    batch = make_batch(runner, [[5, 6, 7]])
    os.kill(other(runner), signal.SIGSTOP)
    launched = runner.launch(batch, np.zeros(1, np.bool_))
    os.kill(other(runner), number)
    ends_in_time(lambda: runner.collect(launched))
    end = time.monotonic() + LIMIT_S
    while runner.failure is None:
        assert time.monotonic() < end, "nobody noticed"
        time.sleep(0.02)
    ends_in_time(runner.check)
