"""When a worker process ends by itself, and that it says why."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import numpy as np

from signalbox.v1 import generation_pb2, to_worker_pb2
from tests.ports import free_ports
from tests.worker_svc.test_worker_process import first_step, new_request, serve_scheduler, start_worker

BAD = 4000


async def exit_status(process: subprocess.Popen[str]) -> int:
    return await asyncio.to_thread(process.wait, 30)


async def test_a_worker_whose_device_is_lost_ends(tmp_path: Path) -> None:
    """It ends no request: these go on elsewhere."""
    log, address = tmp_path / "log", f"127.0.0.1:{free_ports(1)[0]}"
    async with asyncio.timeout(60), serve_scheduler() as (scheduler, port):
        with log.open("w") as stderr:
            options = ("--runner=sim", "--sim-break-step=1")
            process = start_worker(port, address, *options, stderr=stderr)
        try:
            await scheduler.hellos.get()
            scheduler.messages.put_nowait(
                to_worker_pb2.AttachWorkerResponse(
                    new_requests=[new_request(0), new_request(1)], steps=[first_step(0, 1)]
                )
            )
            assert await exit_status(process) == 1
        finally:
            process.kill()
        assert scheduler.reports.empty()
    assert "RunnerBrokenError" in log.read_text() and "the device was to be lost" in log.read_text()


async def test_requests_that_all_break_the_model_do_not_end_their_worker() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    async with asyncio.timeout(60), serve_scheduler() as (scheduler, port):
        process = start_worker(port, address, "--runner=sim", f"--sim-fail-token={BAD}")
        try:
            await scheduler.hellos.get()
            tokens = np.full(25, BAD, "<i4").tobytes()
            payload = generation_pb2.RequestPayload(token_ids=tokens).SerializeToString()
            bad = [new_request(0), new_request(1)]
            for request in bad:
                request.payload = payload
            steps = [first_step(0, 1), to_worker_pb2.SchedulerOutput(step_id=2, scheduler_epoch=1)]
            scheduler.messages.put_nowait(to_worker_pb2.AttachWorkerResponse(new_requests=bad, steps=steps))
            report = await scheduler.reports.get()
            assert list(report.finished_reasons) == [generation_pb2.FINISH_REASON_ERROR] * 2
            assert (await scheduler.reports.get()).step_id == 2
            scheduler.messages.put_nowait(None)
        finally:
            process.terminate()
            assert await exit_status(process) == 0


async def test_more_blocks_per_request_than_a_report_can_number_are_refused() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    options = ("--runner=sim", "--block-size=1", "--max-model-len=65537")
    process = start_worker(9, address, *options, stderr=subprocess.PIPE)
    try:
        assert await exit_status(process) == 1
    finally:
        process.kill()
    assert process.stderr is not None
    (sentence,) = [line for line in process.stderr.read().splitlines() if "65537 blocks" in line]
    assert "--block-size" in sentence and "--max-model-len" in sentence
