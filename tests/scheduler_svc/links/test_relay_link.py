"""Workers behind a relay are workers like any other, and one that goes wrong takes no other with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from scheduler_svc.links.relay_link import MAX_WINDOW_US
from scheduler_svc.step_loop import StepLoop
from signalbox.errors import InvalidRequestError
from signalbox.links.rpc_errors import error_of
from signalbox.v1 import from_worker_pb2, scheduler_pb2, to_worker_pb2
from tests.scheduler_svc.attached import (
    PROMPT_TOKENS,
    RelayStream,
    attach_frontend,
    dial,
    make_event,
    make_hello,
    make_report,
    serve,
    submit,
)

PREFILLED = {"num_prefill_tokens": PROMPT_TOKENS}
DIVERGED = {"num_prefill_tokens": PROMPT_TOKENS + 1}


class Scheduler:
    """A served scheduler and a stub for it."""

    def __init__(self, loop: StepLoop, stub: Any) -> None:
        self.loop, self.stub = loop, stub

    def attached(self) -> set[str]:
        return {name for name, worker in self.loop.core.workers.items() if worker.attached}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.005)


@pytest.fixture
async def scheduler() -> AsyncIterator[Scheduler]:
    async with serve() as (loop, address), dial(address) as stub:
        yield Scheduler(loop, stub)


async def two_workers(scheduler: Scheduler) -> RelayStream:
    """Workers a and b on links 1 and 2, each with the first step of one request."""
    relay = await RelayStream(scheduler.stub).attach()
    await relay.send((1, make_hello("a")), (2, make_hello("b")))
    await scheduler.until(lambda: scheduler.attached() == {"a", "b"})
    frontend = await attach_frontend(scheduler.stub)
    await submit(frontend, "x", "y")
    for link in (1, 2):
        step = await relay.step_of(link)
        assert len(step.new_requests) == 1
    return relay


async def assert_goes_on(relay: RelayStream, link: int) -> None:
    """The link's step can be reported, and is followed by another one."""
    await relay.send((link, make_report(1, **PREFILLED)))
    assert (await relay.step_of(link)).steps[0].step_id == 2


async def direct_transcript(scheduler: Scheduler) -> list[to_worker_pb2.AttachWorkerResponse]:
    """What a worker with a stream of its own is sent."""
    stream = scheduler.stub.AttachWorker()
    await stream.write(make_hello("a"))
    messages = [await stream.read()]
    await submit(await attach_frontend(scheduler.stub), "x")
    messages.append(await stream.read())
    for step_id, report in ((1, PREFILLED), (2, {"num_decode_rows": 1})):
        await stream.write(make_report(step_id, **report))
        messages.append(await stream.read())
    stream.cancel()
    return messages


async def relayed_transcript(scheduler: Scheduler) -> list[Any]:
    """The same behind a relay."""
    relay = await RelayStream(scheduler.stub).attach()
    await relay.send((1, make_hello("a")))
    messages = [await relay.next_of(1)]
    await submit(await attach_frontend(scheduler.stub), "x")
    messages.append(await relay.next_of(1))
    for step_id, report in ((1, PREFILLED), (2, {"num_decode_rows": 1})):
        await relay.send((1, make_report(step_id, **report)))
        messages.append(await relay.next_of(1))
    return messages


async def test_a_relayed_worker_is_sent_what_a_direct_one_is() -> None:
    """R4."""
    async with serve() as (loop, address), dial(address) as stub:
        direct = await direct_transcript(Scheduler(loop, stub))
    async with serve() as (loop, address), dial(address) as stub:
        relayed = await relayed_transcript(Scheduler(loop, stub))
    for message in (*direct, *relayed):
        for request in message.new_requests:
            request.scheduler_meta = b""  # the time of arrival is in it
    assert relayed == direct
    assert [len(message.steps) for message in direct] == [0, 1, 1, 1]


async def test_deltas_of_one_turn_travel_in_one_message(scheduler: Scheduler) -> None:
    relay = await two_workers(scheduler)
    assert [1, 2] in [sorted(links) for links in relay.messages]
    await relay.send((1, make_report(1, **PREFILLED)), (2, make_report(1, **PREFILLED)))
    before = len(relay.messages)
    assert [(await relay.step_of(link)).steps[0].step_id for link in (1, 2)] == [2, 2]
    assert [sorted(links) for links in relay.messages[before:]] == [[1, 2]]


async def test_within_the_window_deltas_of_several_turns_travel_together(scheduler: Scheduler) -> None:
    """R4."""
    relay = await RelayStream(scheduler.stub).attach(window_us=MAX_WINDOW_US)
    for link, name in enumerate(("a", "b", "c"), 1):
        await relay.send((link, make_hello(name)))
    for link in (1, 2, 3):
        assert (await relay.next_of(link)).scheduler_epoch == 7
    assert relay.messages == [[1, 2, 3]]


async def test_a_refused_hello_closes_its_link_only(scheduler: Scheduler) -> None:
    relay = await two_workers(scheduler)
    await relay.send((3, make_hello("c", max_num_batched_tokens=32)))
    closed = await relay.next_of(3)
    assert isinstance(closed, scheduler_pb2.LinkClosed)
    assert (closed.error.code, closed.error.field) == ("InvalidRequestError", "hello")
    assert "max_num_batched_tokens is 64" in closed.error.message
    assert scheduler.attached() == {"a", "b"}
    await assert_goes_on(relay, 1)


async def test_a_link_without_a_hello_is_refused(scheduler: Scheduler) -> None:
    relay = await two_workers(scheduler)
    await relay.send((3, make_event()))
    closed = await relay.next_of(3)
    assert isinstance(closed, scheduler_pb2.LinkClosed)
    assert (closed.error.message, closed.error.field) == ("the first message must carry hello", "hello")
    await assert_goes_on(relay, 2)


async def test_a_divergence_closes_its_link_only(scheduler: Scheduler) -> None:
    """R5."""
    relay = await two_workers(scheduler)
    await relay.send((1, make_report(1, **DIVERGED)), (1, make_event()), (2, make_report(1, **PREFILLED)))
    assert await relay.next_of(1) == scheduler_pb2.LinkClosed(), "no error: it says hello again"
    assert (await relay.step_of(2)).steps[0].step_id == 2
    assert scheduler.attached() == {"b"}
    await relay.send((1, make_event()), (3, make_hello("a")))
    assert isinstance(await relay.next_of(3), to_worker_pb2.AttachWorkerResponse)
    assert scheduler.attached() == {"a", "b"}


@pytest.mark.parametrize(
    "content",
    [b"\xff\xff", make_report(1, sealed_slots=b"\0", **PREFILLED)],
    ids=["no message", "half an element"],
)
async def test_an_unreadable_message_closes_its_link_only(
    scheduler: Scheduler, content: from_worker_pb2.AttachWorkerRequest | bytes
) -> None:
    relay = await two_workers(scheduler)
    await relay.send((1, content))
    assert isinstance(await relay.next_of(1), scheduler_pb2.LinkClosed)
    assert scheduler.attached() == {"b"}
    await assert_goes_on(relay, 2)


async def test_a_worker_that_says_hello_elsewhere_loses_its_old_link(scheduler: Scheduler) -> None:
    relay = await two_workers(scheduler)
    await relay.send((3, make_hello("a")), (1, make_event()))
    assert await relay.next_of(1) == scheduler_pb2.LinkClosed()
    assert scheduler.attached() == {"a", "b"}, "the new link stays"
    await assert_goes_on(relay, 2)


async def test_a_closed_link_detaches_its_worker_only(scheduler: Scheduler) -> None:
    relay = await two_workers(scheduler)
    await relay.send((1, None))
    await scheduler.until(lambda: scheduler.attached() == {"b"})
    await assert_goes_on(relay, 2)


async def test_the_end_of_the_relays_stream_detaches_all_its_workers(scheduler: Scheduler) -> None:
    """R5."""
    direct = scheduler.stub.AttachWorker()
    await direct.write(make_hello("c"))
    await direct.read()
    relay = await RelayStream(scheduler.stub).attach()
    await relay.send((1, make_hello("a")), (2, make_hello("b")))
    await scheduler.until(lambda: scheduler.attached() == {"a", "b", "c"})
    relay.stream.cancel()
    await scheduler.until(lambda: scheduler.attached() == {"c"})
    direct.cancel()


@pytest.mark.parametrize(
    ("first", "field"),
    [
        ({}, "hello"),
        ({"hello": scheduler_pb2.RelayHello(window_us=MAX_WINDOW_US + 1)}, "hello.window_us"),
        (
            {"hello": scheduler_pb2.RelayHello(), "entries": [scheduler_pb2.RelayedRequest(link=1)]},
            "entries.entry",
        ),
        (
            {"hello": scheduler_pb2.RelayHello(), "entries": [scheduler_pb2.RelayedRequest(message=b"")]},
            "entries.link",
        ),
    ],
)
async def test_what_no_relay_says_is_refused(scheduler: Scheduler, first: dict[str, Any], field: str) -> None:
    stream = scheduler.stub.AttachWorkers()
    await stream.write(scheduler_pb2.AttachWorkersRequest(**first))
    with pytest.raises(grpc.aio.AioRpcError) as status:
        async with asyncio.timeout(10):
            while await stream.read() != grpc.aio.EOF:
                pass
    error = error_of(status.value, "the scheduler")
    assert isinstance(error, InvalidRequestError)
    assert error.field == field
