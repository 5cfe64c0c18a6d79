"""Cached blocks go from worker to worker over real streams and channels: all of them, or none that counts (PB)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from signalbox.links import rpc
from signalbox.protocol.block_groups import SPINE
from signalbox.protocol.enums import ReadFault
from signalbox.protocol.parts.names import WorkerName
from signalbox.protocol.parts.pulls import ExportOrder, GroupBlock, PullOrder, PullOrders
from signalbox.v1 import transfer_pb2, transfer_pb2_grpc
from tests.worker_svc.handoff.ends import KEY, End
from tests.worker_svc.handoff.test_sim_handoffs import INFO, PROMPT, WINDOW, asked
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.step import SlotStart
from worker_svc.runner.sim.model import SimRunner
from worker_svc.steps.items import LinkClosed
from worker_svc.transfer.channels.names import ALL, TCP
from worker_svc.transfer.control import feed as feed_module
from worker_svc.transfer.control.dialogue import hello_of
from worker_svc.transfer.control.news import PullBegun
from worker_svc.transfer.control.pull_target import PullTarget

SHOWN = [GroupBlock(SPINE, block) for block in (9, 3, 40, 41)]
WRITTEN = [GroupBlock(SPINE, block) for block in (5, 6, 20, 1)]
CHANNELS = {"messages": None, "shared memory": "", "TCP": "127.0.0.1:0"}


def run(
    test: Callable[[End, End], Coroutine[Any, Any, None]],
    info: RunnerInfo = INFO,
    channel: str | None = None,
) -> None:
    names = (TCP,) if channel else ALL  # both ends are on one host, and would take shared memory

    async def both() -> None:
        async with (
            End("a", SimRunner(info, shared=True), channels=channel, names=names) as a,
            End("b", SimRunner(info, shared=True), channels=channel, names=names) as b,
        ):
            await test(a, b)

    asyncio.run(both())


def fill(end: End, blocks: list[GroupBlock]) -> list[bytes]:
    """Puts something into blocks, and returns what."""
    memory, contents = end.runner.block_memory, []  # type: ignore[attr-defined]
    for number, (group, block) in enumerate(blocks, 1):
        content = bytes([number % 256]) * memory.bytes_per_block(group)
        memory.write(group, [block], content)
        contents.append(content)
    return contents


def held(end: End, blocks: list[GroupBlock]) -> list[bytes]:
    memory = end.runner.block_memory  # type: ignore[attr-defined]
    return [memory.read(group, [block]) for group, block in blocks]


def show(a: End, b: End, number: int = 1, blocks: list[GroupBlock] | None = None, key: bytes = KEY) -> None:
    export = ExportOrder(number, key, b.name, SHOWN if blocks is None else blocks)
    a.step(PullOrders(exports=[export]))


def pull(
    a: End, b: End, number: int = 1, most_s: float = 10.0, key: bytes = KEY, **changes: Any
) -> PullOrder:
    order = PullOrder(b.core.last_step_id + 1, number, key, a.name, a.address, WRITTEN, int(most_s * 1e6))
    order = replace(order, **changes)
    b.step(PullOrders(order))
    return order


async def failure(b: End, fault: ReadFault | None = None) -> str:
    """Why a pull has failed; `fault`: what is said of further ones, if that matters."""
    ended = await b.until("block_pull_ended")
    assert ended.HasField("error") and (fault is None or ended.fault == fault)
    return str(ended.error.message)


@pytest.mark.parametrize("channel", CHANNELS.values(), ids=CHANNELS)
@pytest.mark.parametrize("target_first", [False, True])
def test_blocks_are_read_in_their_order(channel: str | None, target_first: bool) -> None:
    """PB3, PB4: whoever hears of it first."""

    async def test(a: End, b: End) -> None:
        contents = fill(a, SHOWN)
        if target_first:
            order = pull(a, b)
            await asyncio.sleep(0.02)
            show(a, b)
        else:
            show(a, b)
            order = pull(a, b)
        ended = await b.until("block_pull_ended")
        assert not ended.HasField("error"), ended.error
        assert (ended.step_id, held(b, WRITTEN)) == (order.step_id, contents)
        assert ended.duration_us > 0 and np.frombuffer(ended.block_ns, "<u4")[SPINE] > 0
        a.step(PullOrders(ended_exports=[1]))

    run(test, channel=channel)


@pytest.mark.parametrize("channel", CHANNELS.values(), ids=CHANNELS)
def test_blocks_of_all_groups_come(channel: str | None) -> None:
    """PB1, and in many pieces."""
    info = replace(INFO, groups=(WINDOW,))
    shown = [GroupBlock(group, block) for group in (0, 1) for block in range(10, 30)]
    written = [GroupBlock(group, block) for group in (0, 1) for block in range(30, 50)]

    async def test(a: End, b: End) -> None:
        contents = fill(a, shown)
        show(a, b, blocks=shown)
        pull(a, b, blocks=written)
        ended = await b.until("block_pull_ended")
        assert not ended.HasField("error"), ended.error
        assert held(b, written) == contents

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed_module, "PIECE_BYTES", 200)
        run(test, info, channel)


@pytest.mark.parametrize("channel", CHANNELS.values(), ids=CHANNELS)
def test_what_is_read_behind_an_end_does_not_count(channel: str | None) -> None:
    """PB4: from shared memory it can be read, and the source has no word left to say of it."""

    async def test(a: End, b: End) -> None:
        fill(a, SHOWN)
        show(a, b)
        mover, reads = b.transfers._pulls._mover, []
        fetch, write = mover.fetch, mover.write

        async def end_first(*args: Any) -> None:
            await asyncio.sleep(0.02)  # the source has said all that it would say if nobody answered
            a.step(PullOrders(ended_exports=[1]))
            fill(a, SHOWN[::-1])  # it is another's by now
            await asyncio.sleep(0.01)
            reads.append(args)
            await (write if channel is None else fetch)(*args)

        mover.fetch = mover.write = end_first  # type: ignore[method-assign]
        pull(a, b)
        assert "it is over" in await failure(b, ReadFault.WITHDRAWN)
        assert reads, "nothing was read"

    run(test, channel=channel)


def test_a_source_without_a_scheduler_shows_nothing() -> None:
    """PB5."""

    async def test(a: End, b: End) -> None:
        show(a, b)
        a._take(LinkClosed())
        assert [type(each).__name__ for each in a.news] == ["CacheExportBegun", "CacheExportOver"]
        pull(a, b, most_s=0.1)
        assert await failure(b)

    run(test)


def test_a_target_without_a_scheduler_writes_nothing_and_says_nothing() -> None:
    """PB5, A1: nothing of it is written behind the end of the link, and no later link hears of it."""

    async def test(a: End, b: End) -> None:
        before = fill(b, WRITTEN)
        order = pull(a, b)
        b._take(LinkClosed())
        fill(a, SHOWN)
        show(a, b)
        await asyncio.sleep(0.1)
        assert held(b, WRITTEN) == before
        assert not b.events and b.engine._handoffs._pulls._pulls == {}
        assert order.step_id not in b.transfers._pulls._tasks

    run(test)


def test_a_pull_that_takes_too_long_is_given_up() -> None:
    """PB5: nobody shows anything."""

    async def test(a: End, b: End) -> None:
        pull(a, b, most_s=0.1)
        assert "longer than computing" in await failure(b, ReadFault.PAIR)

    run(test)


@pytest.mark.parametrize(
    "changes",
    [{"key": b"another"}, {"number": 2, "most_us": 100_000}, {"source": WorkerName("x", "y")}],
)
def test_only_who_was_named_reads_what_was_shown(changes: dict[str, Any]) -> None:
    """PB3: under that number and key, and from whom it was told."""

    async def test(a: End, b: End) -> None:
        before = fill(b, WRITTEN)
        show(a, b)
        pull(a, b, **changes)
        assert await failure(b)
        assert held(b, WRITTEN) == before

    run(test)


def test_a_request_is_not_read_as_blocks_of_the_cache() -> None:
    """PB3: their numbers are apart."""

    async def test(a: End, b: End) -> None:
        show(a, b)
        async with rpc.channel(a.address) as channel:
            stream = transfer_pb2_grpc.TransferServiceStub(channel).Pull()
            await stream.write(transfer_pb2.PullRequest(hello=hello_of(b.name, 1, KEY)))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    while (await stream.read()).WhichOneof("part") is None:
                        pass  # a heartbeat

    run(test)


def test_fewer_blocks_than_were_to_come_are_none() -> None:
    """PB5: a source that shows less than it was told to."""

    async def test(a: End, b: End) -> None:
        show(a, b, blocks=SHOWN[:2])
        pull(a, b)
        assert "2 blocks came, of 4" in await failure(b)

    run(test)


def test_blocks_are_written_when_the_step_has_run() -> None:
    """PB2, K2: what they held until then the step may read yet."""

    async def test(a: End, b: End) -> None:
        order = pull(a, b)
        [begun] = [each for each in b.news if isinstance(each, PullBegun)]
        assert begun.order is order and len(b.results) == 1, "it began ahead of the commit"

    with pytest.MonkeyPatch.context() as patch:
        real = PullTarget.take
        seen: list[int] = []

        def take(self: PullTarget, news: Any) -> None:
            seen.append(1)
            real(self, news)

        patch.setattr(PullTarget, "take", take)
        run(test)
    assert seen


@pytest.mark.parametrize(
    ("orders", "reason"),
    [
        (
            PullOrders(exports=[ExportOrder(1, KEY, WorkerName("b", "i"), [GroupBlock(0, 64)])]),
            "there is none",
        ),
        (
            PullOrders(exports=[ExportOrder(1, KEY, WorkerName("b", "i"), [GroupBlock(1, 0)])]),
            "there is none",
        ),
        (PullOrders(exports=[ExportOrder(1, KEY, WorkerName("b", "i"), SHOWN * 2)]), "twice"),
        (PullOrders(PullOrder(1, 1, KEY, WorkerName("", "i"), "a:1", WRITTEN, 1)), "without a name"),
        (PullOrders(PullOrder(1, 1, KEY, WorkerName("a", "i"), "", WRITTEN, 1)), "an address"),
        (PullOrders(PullOrder(1, 1, b"", WorkerName("a", "i"), "a:1", WRITTEN, 1)), "a key of 0 bytes"),
        (
            PullOrders(
                PullOrder(1, 1, KEY, WorkerName("a", "i"), "a:1", SHOWN, 1),
                [ExportOrder(1, KEY, WorkerName("b", "i"), SHOWN)],
            ),
            "that it has written",
        ),
    ],
)
def test_orders_that_fit_no_worker_close_the_link(orders: PullOrders, reason: str) -> None:
    """K10."""

    async def test(a: End, b: End) -> None:
        a.try_step(orders)
        assert a.refusals and reason in a.refusals[0]

    run(test)


def test_a_block_that_a_request_has_is_not_pulled() -> None:
    """K10, PB2."""

    async def test(a: End, b: End) -> None:
        b.add(asked().message(0))
        b.step(started=[SlotStart(0, np.array([5, 7, 8, 9, 10, 11], np.int32), 0, len(PROMPT))])
        order = PullOrder(b.core.last_step_id + 1, 1, KEY, a.name, a.address, WRITTEN, 1)
        b.try_step(PullOrders(order))
        assert "another request holds it" in b.refusals[0]

    run(test)
