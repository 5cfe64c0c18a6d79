"""Graphs that fail when they are replayed, and what a failed capture leaves: never a wrong token."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from signalbox.protocol.enums import FinishReason
from signalbox.v1 import to_worker_pb2
from tests.ports import free_ports
from tests.worker_svc.drafting.local_ring import Client
from tests.worker_svc.runner.cuda.replayed_capture import GONE, Device, MortalRunner, ReplayedCapture
from tests.worker_svc.runner.reference import generate
from tests.worker_svc.test_worker_process import first_step, new_request, serve_scheduler
from tests.worker_svc.threaded_ring import ThreadedRing
from worker_svc.runner.cuda.captures import Capture, Results
from worker_svc.runner.cuda.faults import Reason
from worker_svc.runner.cuda.graphs import CAPTURE, REPLAY, CapturedStep, DecodeStep
from worker_svc.runner.cuda.transfers import HostCopy
from worker_svc.runner.errors import ModelLoadError

ModelDir = Callable[[str], Path]
PRESET = "tiny-qwen3"
PROMPTS = [[5, 6, 7], [300, 20, 9, 11, 4]]
NUM_TOKENS = 4
FAILING_WORKER = "tests.worker_svc.runner.cuda.interpreted.failing_worker"


def make(model_dir: ModelDir, capture: Capture, device: Device | None = None) -> MortalRunner:
    return MortalRunner(
        model_dir(PRESET),
        served_model_name="tiny",
        num_slots=2,
        attention="triton",
        dtype="float32",
        num_blocks=40,
        block_size=4,
        max_model_len=32,
        threads=1,
        capture=capture,
        device_lost=device or Device(),
    )


def submit_all(ring: ThreadedRing) -> list[Client]:
    return [ring.submit(prompt, NUM_TOKENS) for prompt in PROMPTS]


def serve(runner: MortalRunner) -> list[list[int]]:
    """Tokens of all clients, a step ahead."""
    ring = ThreadedRing(runner, depth=2, is_awaited=True)
    try:
        clients = submit_all(ring)
        while not all(client.ends for client in clients):
            ring.step()
    finally:
        ring.close()
    assert [client.ends for client in clients] == [[FinishReason.LENGTH]] * len(PROMPTS)
    return [client.output for client in clients]


@pytest.fixture(scope="module")
def expected(model_dir: ModelDir) -> list[list[int]]:
    """Tokens of transformers."""
    outputs = [generate(model_dir(PRESET), tuple(prompt), NUM_TOKENS)[0] for prompt in PROMPTS]
    assert len({tuple(output) for output in outputs}) == len(PROMPTS)
    return outputs


def test_a_graph_that_cannot_be_replayed_is_given_up(
    model_dir: ModelDir, expected: list[list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    """O7: its step, and the one launched behind it, are run again without it; nobody gets a wrong token."""
    runner = make(model_dir, ReplayedCapture(2))
    with caplog.at_level(logging.WARNING):
        assert serve(runner) == expected
    assert isinstance(runner._steps.for_rows(2), DecodeStep)
    assert isinstance(runner._steps.for_rows(1), CapturedStep)
    failures = {key: count for key, count in runner.graph_failures.items() if count}
    assert failures == {(REPLAY, Reason.RESOURCES): 1}
    assert caplog.text.count("The CUDA graph of 2 rows is given up") == 1


def test_a_replay_that_fails_behind_its_launch_gives_no_token(
    model_dir: ModelDir, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """O7: as a kernel does; the host hears of it when it waits for the tokens, which are wrong."""
    failed: list[HostCopy] = []
    capture, wait = ReplayedCapture(2, lambda: failed.append(None)), HostCopy.wait  # type: ignore[arg-type]

    def wait_for(copy: HostCopy) -> Any:
        if failed == [None]:
            failed.append(copy)
            raise torch.AcceleratorError("CUDA error: of the kernel before")
        return wait(copy)

    monkeypatch.setattr(HostCopy, "wait", wait_for)
    assert serve(make(model_dir, capture)) == expected
    assert len(failed) == 2


def test_a_device_that_a_capture_has_broken_is_refused(model_dir: ModelDir) -> None:
    """U5."""
    device = Device()

    def capture(run: Callable[[], Results]) -> tuple[Callable[[], object], Results]:
        device.lose()
        return ReplayedCapture()(run)

    with pytest.raises(
        ModelLoadError, match=r"computes nothing any more since a CUDA graph .* illegal memory"
    ):
        make(model_dir, capture, device)


def test_a_capture_that_lacks_memory_is_counted(model_dir: ModelDir) -> None:
    """U5: torch says so in several ways."""
    capture, sizes = ReplayedCapture(), []

    def scarce(run: Callable[[], Results]) -> tuple[Callable[[], object], Results]:
        replay, results = capture(run)
        sizes.append(len(results[0]))
        if sizes[-1] == 2:
            raise torch.AcceleratorError("CUDA error: out of memory")
        return replay, results

    runner = make(model_dir, scarce)
    assert sizes == [2, 1] and runner.num_graphs == 1
    assert runner.graph_failures[CAPTURE, Reason.MEMORY] == 1 == sum(runner.graph_failures.values())


async def test_a_worker_process_whose_device_is_lost_in_a_replay_ends(
    model_dir: ModelDir, tmp_path: Path
) -> None:
    """O7, U2: status 1, and the step is not reported."""
    log, address = tmp_path / "log", f"127.0.0.1:{free_ports(1)[0]}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX")}
    async with asyncio.timeout(150), serve_scheduler() as (scheduler, port):
        options = (
            f"--listen={address} --scheduler=127.0.0.1:{port} --attention=triton --dtype=float32 --threads=1"
        )
        sizes = f"--num-blocks=64 --block-size=4 --num-slots=2 --max-model-len=64 --model={model_dir(PRESET)}"
        command = [
            sys.executable,
            "-m",
            FAILING_WORKER,
            "1",
            *options.split(),
            *sizes.split(),
        ]
        with log.open("w") as stderr:
            process = subprocess.Popen(command, env=environment, text=True, stderr=stderr)
        try:
            await scheduler.hellos.get()
            request = new_request(0)
            request.max_tokens = 3
            scheduler.messages.put_nowait(
                to_worker_pb2.AttachWorkerResponse(new_requests=[request], steps=[first_step(0)])
            )
            report = await scheduler.reports.get()
            assert report.step_id == 1 and not report.finished_reasons
            decode = to_worker_pb2.SchedulerOutput(step_id=2, scheduler_epoch=1)
            scheduler.messages.put_nowait(to_worker_pb2.AttachWorkerResponse(steps=[decode]))
            assert await asyncio.to_thread(process.wait, 60) == 1
            leaving = [scheduler.events.get_nowait() for _ in range(scheduler.events.qsize())]
        finally:
            process.kill()
        assert scheduler.reports.empty()
    assert [event.leaving.has_crashed for event in leaving if event.HasField("leaving")] == [True]
    assert "RunnerBrokenError" in log.read_text() and GONE in log.read_text()
    assert np.frombuffer(report.exception_slots, "<u2").size == 0
