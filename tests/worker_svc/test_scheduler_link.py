"""The link of a worker process to a scheduler: one of them refuses what the other sends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from signalbox.v1 import to_worker_pb2
from tests.ports import free_ports
from tests.scheduler_svc.attached import serve
from tests.worker_svc.test_worker_process import start_request, worker_process

REFUSAL = "max_num_batched_tokens is 64, but the worker's runner takes 32"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_refused_worker_tries_again_and_is_not_attached_meanwhile(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with serve() as (loop, scheduler):
        flags = [f"--scheduler={scheduler}", f"--listen=127.0.0.1:{free_ports(1)[0]}"]
        flags += ["--runner=sim", "--max-num-batched-tokens=32"]
        with log.open("wb") as output:
            process = subprocess.Popen([sys.executable, "-m", "worker_svc", *flags], stderr=output)
        try:
            await until(lambda: log.read_text().count(REFUSAL) >= 3)
            assert "attached to the scheduler" not in log.read_text()
            assert not loop.core.workers
        finally:
            process.terminate()
            assert process.wait(20) == 0


async def test_a_refused_step_is_followed_by_a_hello_with_all_that_the_worker_holds() -> None:
    """J3."""
    async with asyncio.timeout(100), worker_process("--runner=sim") as (scheduler, _):
        await start_request(scheduler)
        out_of_turn = to_worker_pb2.SchedulerOutput(step_id=7, scheduler_epoch=1)
        scheduler.messages.put_nowait(to_worker_pb2.AttachWorkerResponse(steps=[out_of_turn]))
        snapshot = (await scheduler.hellos.get()).snapshot
        assert [slot.ref.request_id for slot in snapshot.slots] == ["r0"]


async def test_a_hello_without_a_snapshot_says_whose_the_highest_term_is() -> None:
    """T5: of a worker that has made no step."""
    async with asyncio.timeout(100), worker_process("--runner=sim") as (scheduler, _):
        first = await scheduler.hellos.get()
        assert (first.scheduler_epoch, first.scheduler_instance) == (0, "")
        greeting = to_worker_pb2.AttachWorkerResponse(scheduler_epoch=5, scheduler_instance="theirs")
        scheduler.messages.put_nowait(greeting)
        scheduler.messages.put_nowait(None)
        second = await scheduler.hellos.get()
        assert (second.scheduler_epoch, second.scheduler_instance) == (5, "theirs")
        assert not second.HasField("snapshot")
