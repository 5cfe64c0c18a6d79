"""The relay as a process, between a scheduler and workers whose streams a test speaks by hand: a worker cannot tell it
from a scheduler."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from scheduler_svc.servicer import SchedulerServicer
from scheduler_svc.step_loop import StepLoop
from signalbox.errors import InvalidRequestError, SignalboxError, UnavailableError
from signalbox.links import rpc
from signalbox.links.rpc_errors import error_of
from signalbox.v1 import scheduler_pb2, shared_pb2
from tests.ports import free_ports
from tests.scheduler_svc.attached import (
    PROMPT_TOKENS,
    attach_frontend,
    dial,
    make_event,
    make_hello,
    make_report,
    serve,
    submit,
)
from tests.telemetry.test_metrics import Value, scrape

SERVICE = "signalbox.v1.SchedulerService"


@asynccontextmanager
async def run_relay(log: Path, scheduler: str, *options: str) -> AsyncIterator[str]:
    """A relay process; its address."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, "-m", "worker_svc.relay", f"--listen={address}", f"--scheduler={scheduler}"]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *options], stdout=output, stderr=output)
    try:
        yield address
    finally:
        process.terminate()
        assert process.wait(20) == 0, log.read_text()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0.02)


async def health_is(address: str, expected: str) -> None:
    """Until the relay answers so."""
    status = health_pb2.HealthCheckResponse.ServingStatus

    async def answers() -> bool:
        async with rpc.channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            try:
                answer = await stub.Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=2)
            except grpc.aio.AioRpcError:
                return False
        return bool(status.Name(answer.status) == expected)

    await until(answers)


async def attach(stub: Any, worker_id: str, **hello: Any) -> Any:
    """The stream of a worker that has said hello and was taken."""
    stream = stub.AttachWorker()
    await stream.write(make_hello(worker_id, **hello))
    await read(stream)
    return stream


async def read(stream: Any) -> Any:
    async with asyncio.timeout(10):
        return await stream.read()


async def failure_of(stream: Any) -> SignalboxError:
    """What ended the stream."""
    with pytest.raises(grpc.aio.AioRpcError) as status:
        async with asyncio.timeout(10):
            while await stream.read() != grpc.aio.EOF:
                pass
    return error_of(status.value, "the scheduler")


def attached(loop: StepLoop) -> set[str]:
    return {name for name, worker in loop.core.workers.items() if worker.attached}


async def become_attached(loop: StepLoop, *names: str) -> None:
    async def are() -> bool:
        return attached(loop) == set(names)

    await until(are)


class Counting(SchedulerServicer):
    """Counts what relays send."""

    messages: ClassVar[list[int]] = []
    """Entries of each message."""

    async def AttachWorkers(self, requests: Any, context: Any) -> None:  # noqa: N802
        async def counted() -> AsyncIterator[scheduler_pb2.AttachWorkersRequest]:
            async for message in requests:
                self.messages.append(len(message.entries))
                yield message

        await super().AttachWorkers(counted(), context)


async def test_a_refused_worker_is_told_what_the_scheduler_said(tmp_path: Path) -> None:
    async with serve() as (loop, scheduler), run_relay(tmp_path / "log", scheduler) as address:
        await health_is(address, "SERVING")
        async with dial(address) as relay, dial(scheduler) as direct:
            other = await attach(relay, "a")
            errors = []
            for stub in (direct, relay):
                stream = stub.AttachWorker()
                await stream.write(make_hello("b", max_num_batched_tokens=32))
                errors.append(await failure_of(stream))
            assert isinstance(errors[1], InvalidRequestError)
            assert (errors[1].message, errors[1].field) == (errors[0].message, "hello")
            assert attached(loop) == {"a"}
            assert not other.done()


async def test_a_divergence_ends_one_workers_stream_and_no_other(tmp_path: Path) -> None:
    """R5."""
    async with serve() as (loop, scheduler), run_relay(tmp_path / "log", scheduler) as address:
        await health_is(address, "SERVING")
        async with dial(address) as relay, dial(scheduler) as direct:
            good, bad = await attach(relay, "good"), await attach(relay, "bad")
            frontend = await attach_frontend(direct)
            await submit(frontend, "x", "y")
            assert [len((await read(stream)).steps) for stream in (good, bad)] == [1, 1]
            await bad.write(make_report(1, num_prefill_tokens=PROMPT_TOKENS + 1))
            assert await read(bad) == grpc.aio.EOF
            assert await bad.code() == grpc.StatusCode.OK
            assert attached(loop) == {"good"}
            await good.write(make_report(1, num_prefill_tokens=PROMPT_TOKENS))
            assert (await read(good)).steps[0].step_id == 2
            again = await attach(relay, "bad")
            assert attached(loop) == {"good", "bad"}
            again.cancel()
            await become_attached(loop, "good")


async def test_a_worker_that_ends_its_stream_is_detached(tmp_path: Path) -> None:
    async with serve() as (loop, scheduler), run_relay(tmp_path / "log", scheduler) as address:
        await health_is(address, "SERVING")
        async with dial(address) as relay:
            first, second = await attach(relay, "a"), await attach(relay, "b")
            await first.done_writing()
            assert await read(first) == grpc.aio.EOF
            await become_attached(loop, "b")
            second.cancel()
            await become_attached(loop)


async def test_the_end_of_a_worker_is_passed_on(tmp_path: Path) -> None:
    """E2: what its guardian says, and what the scheduler thinks of that."""
    async with serve() as (loop, scheduler), run_relay(tmp_path / "log", scheduler) as address:
        await health_is(address, "SERVING")
        async with dial(address) as relay:
            stream = await attach(relay, "a")
            process = loop.core.workers["a"].process
            report = scheduler_pb2.ReportWorkerExitRequest(
                worker=shared_pb2.WorkerRef(worker_id="a", worker_instance=process.instance),
                exit=scheduler_pb2.WORKER_EXIT_CRASHED,
                reason="Segmentation fault",
            )
            await relay.ReportWorkerExit(report)
            told = loop.core.liveness.evidence.exit_of(process)
            assert told is not None and told.reason == "Segmentation fault"
            with pytest.raises(grpc.aio.AioRpcError) as status:
                await relay.ReportWorkerExit(scheduler_pb2.ReportWorkerExitRequest())
            assert status.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            stream.cancel()


async def test_workers_may_say_hello_in_another_order_than_they_dial(tmp_path: Path) -> None:
    async with serve() as (loop, scheduler), run_relay(tmp_path / "log", scheduler) as address:
        await health_is(address, "SERVING")
        async with dial(address) as relay:
            slow = relay.AttachWorker()
            await asyncio.sleep(0.2)  # its call is at the relay, with nothing in it yet
            await attach(relay, "quick")
            await slow.write(make_hello("slow"))
            await read(slow)
            assert attached(loop) == {"quick", "slow"}


async def test_what_comes_within_the_window_travels_together(tmp_path: Path) -> None:
    """R4."""
    Counting.messages.clear()
    async with (
        serve(Counting) as (_, scheduler),
        run_relay(tmp_path / "log", scheduler, "--window-ms=100") as address,
    ):
        await health_is(address, "SERVING")
        async with dial(address) as relay:
            streams = [await attach(relay, f"w{number}") for number in range(5)]
            before = len(Counting.messages)
            for stream in streams:
                await stream.write(make_event())
                await asyncio.sleep(0.01)

            async def all_came() -> bool:
                return sum(Counting.messages[before:]) == len(streams)

            await until(all_came)
            assert len(Counting.messages) - before <= 2


async def test_metrics_count_workers_and_what_their_links_carry(tmp_path: Path) -> None:
    place = f"127.0.0.1:{free_ports(1)[0]}"
    port = free_ports(1)[0]
    options = (f"--metrics={place}", "--window-ms=100")
    async with run_relay(tmp_path / "log", f"127.0.0.1:{port}", *options) as address:
        async with serve(port=port) as (_, scheduler), dial(address) as relay, dial(scheduler) as direct:
            await health_is(address, "SERVING")
            streams = [await attach(relay, f"w{number}") for number in range(3)]
            before = await asyncio.to_thread(scrape, place)
            assert before("signalbox_relay_attached") == before("signalbox_relay_attachments_total") == 1
            assert before("signalbox_relay_workers") == before("signalbox_relay_worker_links_total") == 3
            assert before("signalbox_relay_waiting") == 0
            for stream in streams:
                await stream.write(make_event())
            frontend = await attach_frontend(direct)
            await submit(frontend, "x")

            async def both_ways_were_taken() -> bool:
                now = await asyncio.to_thread(scrape, place)
                return gain(before, now, "entries", "up") == 3 and gain(before, now, "entries", "down") >= 1

            await until(both_ways_were_taken)
            after = await asyncio.to_thread(scrape, place)
            for direction in ("up", "down"):
                messages = gain(before, after, "messages", direction)
                assert 1 <= messages <= gain(before, after, "entries", direction)
        await health_is(address, "NOT_SERVING")
        lost = await asyncio.to_thread(scrape, place)
        assert lost("signalbox_relay_attached") == lost("signalbox_relay_workers") == 0


def gain(before: Value, after: Value, name: str, direction: str) -> float:
    """What a counter of one direction has risen by."""
    name = f"signalbox_relay_{name}_total"
    return after(name, direction=direction) - before(name, direction=direction)


async def test_without_a_scheduler_workers_are_sent_away(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    async with run_relay(tmp_path / "log", f"127.0.0.1:{port}") as address:
        await health_is(address, "NOT_SERVING")
        async with dial(address) as relay:
            stream = relay.AttachWorker()
            await stream.write(make_hello("a"))
            error = await failure_of(stream)
        assert isinstance(error, UnavailableError)
        assert "relay-0 has no link to the scheduler" in error.message


async def test_the_end_of_the_scheduler_ends_all_streams_and_the_next_one_is_found(tmp_path: Path) -> None:
    """R5."""
    port = free_ports(1)[0]
    async with run_relay(tmp_path / "log", f"127.0.0.1:{port}") as address, dial(address) as relay:
        async with serve(port=port):
            await health_is(address, "SERVING")
            streams = [await attach(relay, name) for name in ("a", "b")]
        for stream in streams:
            error = await failure_of(stream)
            assert isinstance(error, UnavailableError)
            assert "relay-0 lost its link to the scheduler" in error.message
        await health_is(address, "NOT_SERVING")
        async with serve(port=port) as (loop, _):
            await health_is(address, "SERVING")
            await attach(relay, "a")
            assert attached(loop) == {"a"}


def test_the_relay_loads_no_model_code() -> None:
    code = "import sys, worker_svc.relay.__main__; print(*({'torch', 'numpy'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
