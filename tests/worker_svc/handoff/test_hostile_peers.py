"""Peers that say what no worker of ours does, over real streams: each costs one hand-off, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import numpy as np
import pytest

from signalbox.links import rpc
from signalbox.protocol.parts.handoff import HandoffOrders
from signalbox.v1 import generation_pb2, shared_pb2, transfer_pb2, transfer_pb2_grpc, worker_pb2
from signalbox.v1.transfer_offer_pb2 import TransferOffer
from tests.worker_svc.handoff.ends import ATTEMPT, KEY, Asked, End
from tests.worker_svc.handoff.test_failed_handoffs import EXPECTED, goes_on
from tests.worker_svc.handoff.test_sim_handoffs import BLOCKS, INFO, PROMPT, asked
from worker_svc.core.requests.request_state import SlotStatus
from worker_svc.runner.sim.model import SimRunner, content
from worker_svc.transfer.control import feed as feed_module
from worker_svc.transfer.control import source as source_module

Parts = list[transfer_pb2.PullResponse]
NUM_OUTPUT = 3


def packed(values: list[int]) -> bytes:
    return np.array(values, "<i4").tobytes()


def block(index: int) -> bytes:
    """What the simulated model keeps in a block."""
    tokens = np.array(PROMPT + EXPECTED, np.int32)
    at = np.arange(4 * index, 4 * index + 4, dtype=np.int32)
    return content(tokens[at], at).tobytes()


def head(**changes: Any) -> transfer_pb2.PullResponse:
    told: dict[str, Any] = {
        "source": shared_pb2.WorkerRef(worker_id="x", worker_instance="instance of x"),
        "payload": generation_pb2.RequestPayload().SerializeToString(),
        "token_ids": packed(PROMPT + EXPECTED[:1]),
        "num_prompt_tokens": len(PROMPT),
    }
    return transfer_pb2.PullResponse(head=transfer_pb2.PullHead(**(told | changes)))


def blocks(first: int, count: int, number: int = 1, **changes: Any) -> transfer_pb2.PullResponse:
    told: dict[str, Any] = {
        "number": number,
        "first": first,
        "block_ids": packed(list(range(count))),
        "content": b"".join(block(index) for index in range(first, first + count)),
    }
    return transfer_pb2.PullResponse(blocks=transfer_pb2.BlocksReady(**(told | changes)))


def tail(**changes: Any) -> transfer_pb2.PullResponse:
    told: dict[str, Any] = {
        "token_ids": packed(EXPECTED[1:NUM_OUTPUT]),
        "num_computed_tokens": len(PROMPT) + NUM_OUTPUT - 1,
        "num_read_positions": len(PROMPT),
        "chain_hash": b"h" * 16,
    }
    return transfer_pb2.PullResponse(tail=transfer_pb2.PullTail(**(told | changes)))


def unread(**changes: Any) -> transfer_pb2.PullResponse:
    told = {
        "attempts": np.array([ATTEMPT], "<u4").tobytes(),
        "starts": np.array([2], "<u4").tobytes(),
        "token_ids": packed(EXPECTED[2:3]),
    }
    return tail(unread=[worker_pb2.OutputBatch(**(told | changes))])


def good(last: transfer_pb2.PullResponse | None = None) -> Parts:
    return [head(), blocks(0, 4), blocks(4, 2, 2), last or tail()]


def error(message: str) -> transfer_pb2.PullResponse:
    return transfer_pb2.PullResponse(error=generation_pb2.Error(message=message))


def state(content: bytes) -> transfer_pb2.PullResponse:
    return transfer_pb2.PullResponse(state=transfer_pb2.StatePart(content=content))


STRANGER = shared_pb2.WorkerRef(worker_id="y", worker_instance="another")
BAD: dict[str, Parts] = {
    "says nothing": [],
    "an error": [error("no")],
    "an error later": [head(), blocks(0, 4), error("no")],
    "no head": [blocks(0, 1)],
    "no tail": [head(), blocks(0, 4)],
    "another worker": [head(source=STRANGER)],
    "no payload": [head(payload=b"\xff"), *good()[1:]],
    "half a token": [head(token_ids=b"123"), *good()[1:]],
    "no tokens": [head(token_ids=b""), *good()[1:]],
    "another prompt": [head(num_prompt_tokens=5), *good()[1:]],
    "a token that is none": [head(token_ids=packed([*PROMPT, 100])), *good()[1:]],
    "an offer of other blocks": [head(offer=TransferOffer(token=b"t", layout_digest="x")), *good()[1:]],
    "two heads": [head(), head()],
    "nothing at all": [head(), transfer_pb2.PullResponse()],
    "blocks out of order": [head(), blocks(0, 4, 2)],
    "a group that is none": [head(), blocks(0, 4, group=1)],
    "half a block id": [head(), blocks(0, 4, block_ids=b"12345")],
    "content of another size": [head(), blocks(0, 4, content=b"1234")],
    "no content": [head(), blocks(0, 4, content=b"")],
    "a block missing": [head(), blocks(0, 4), tail()],
    "the middle missing": [head(), blocks(0, 3), blocks(4, 2, 2), tail()],
    "more computed than known": good(tail(num_computed_tokens=len(PROMPT) + NUM_OUTPUT)),
    "more read than known": good(tail(num_read_positions=1000)),
    "too many tokens": good(tail(token_ids=packed(EXPECTED * 3))),
    "as many as there may be": good(tail(token_ids=packed(EXPECTED[1:40]))),
    "half a token at last": good(tail(token_ids=b"123")),
    "half a name": good(tail(sealed_hashes=b"123")),
    "half a chain": good(tail(chain_hash=b"123")),
    "names of more than there is": good(tail(sealed_hashes=b"h" * 16 * 8)),
    "a chain of others": good(tail(sealed_hashes=b"g" * 16)),
    "a state": [*good()[:-1], state(bytes(8)), tail(num_state_bytes=8)],
    "a state that is short": [*good()[:-1], state(bytes(8)), tail(num_state_bytes=9)],
    "drafts behind no state": good(tail(num_state_drafts=2)),
    "an output of another": good(unread(attempts=np.array([8], "<u4").tobytes())),
    "an output of other tokens": good(unread(token_ids=packed([1]))),
    "an output behind all others": good(unread(starts=np.array([99], "<u4").tobytes())),
    "an output that ends it": good(unread(finished=[worker_pb2.OutputFinished(attempt=ATTEMPT)])),
    "an output with half a column": good(unread(starts=b"123")),
    "words of others": good(unread(logprobs=[worker_pb2.OutputLogprobs(attempt=3)])),
}


class Impostor(transfer_pb2_grpc.TransferServiceServicer):
    """Says what a test wrote down."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def Pull(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Says it, and waits for the target to end."""
        await anext(aiter(requests))
        for part in self._parts:
            yield part
        if self._parts and self._parts[-1].WhichOneof("part") == "tail":
            async for _ in requests:
                pass


async def at_impostor(parts: Parts, then: Callable[[End], Any], request: Asked | None = None) -> None:
    """A worker `b` that takes a request over, in slot 1, from a source that says `parts`."""
    server = rpc.Server(["signalbox.v1.TransferService"])
    transfer_pb2_grpc.add_TransferServiceServicer_to_server(Impostor(parts), server.grpc)
    port = await server.start("127.0.0.1:0")
    async with End("b", SimRunner(INFO)) as b, End("x", SimRunner(INFO)) as x:
        x.address = f"127.0.0.1:{port}"
        b.add((request or asked()).coming(1, 1, 1, x))
        b.give(1, BLOCKS)
        await then(b)
    await server.stop(0)


def test_the_impostor_can_be_a_good_source() -> None:
    """HO11, HO12: else those below would fail for any reason."""

    async def test(b: End) -> None:
        assert not (await b.until("import_ended")).HasField("error")
        b.commit(1)
        assert [packed(EXPECTED[2:3]), packed(EXPECTED[3:4])] == [batch.token_ids for batch in b.batches()]
        assert np.frombuffer(b.batches()[0].legs, "<u4").tolist() == [1]
        seen = dict(enumerate(EXPECTED[:NUM_OUTPUT]))
        while not b.tell(seen):
            b.step()
        assert [seen[number] for number in range(40)] == EXPECTED

    asyncio.run(at_impostor(good(unread()), test))


@pytest.mark.parametrize("name", BAD)
def test_what_no_source_says_ends_the_hand_off(name: str) -> None:
    """HO8, TR6."""

    async def test(b: End) -> None:
        ended = await b.until("import_ended")
        assert ended.error.message and ended.transfer == 1
        assert b.core.table.status[1] == SlotStatus.IMPORTING, "it waits for the scheduler's word"
        b.step(finished_slots=[1])
        await asyncio.sleep(0)
        assert b.core.held_slots() == [] and not b.core.table.holders.any() and b.batches() == []
        assert [event.WhichOneof("event") for event in b.events if event.HasField("import_ended")] == []
        b.core.table.check_integrity()

    asyncio.run(at_impostor(BAD[name], test))


async def pulled(a: End, *requests: transfer_pb2.PullRequest) -> tuple[Parts, grpc.StatusCode]:
    """What a source answers to these."""
    parts: Parts = []
    async with rpc.channel(a.address) as channel:
        call = transfer_pb2_grpc.TransferServiceStub(channel).Pull(iter_of(requests))
        try:
            async for part in call:
                parts.append(part)
        except grpc.aio.AioRpcError as failure:
            return parts, failure.code()
    return parts, grpc.StatusCode.OK


async def iter_of(requests: tuple[Any, ...]) -> AsyncIterator[Any]:
    for request in requests:
        yield request


def hello(**changes: Any) -> transfer_pb2.PullRequest:
    target = shared_pb2.WorkerRef(worker_id="b", worker_instance="instance of b")
    told: dict[str, Any] = {"transfer": 1, "key": KEY, "target": target}
    return transfer_pb2.PullRequest(hello=transfer_pb2.PullHello(**(told | changes)))


def test_targets_that_make_no_sense_are_refused_and_disturb_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """HO2, R10: no hello, another key, another worker, a version that nobody speaks, a transfer that never was, and
    more of these than may wait."""
    monkeypatch.setattr(source_module, "WAIT_S", 0.2)
    monkeypatch.setattr(source_module, "MOST_WAITING", 3)

    async def test() -> None:
        async with End("a", SimRunner(INFO)) as a, End("b", SimRunner(INFO)) as b:
            a.add(asked().message(0))
            a.start(0, BLOCKS, len(PROMPT))
            a.export(0, 1, b)
            future = generation_pb2.ProtocolVersions(newest=99, oldest=99)
            codes = grpc.StatusCode
            assert await pulled(a) == ([], codes.INVALID_ARGUMENT)
            assert await pulled(a, transfer_pb2.PullRequest(num_read=3)) == ([], codes.INVALID_ARGUMENT)
            assert await pulled(a, hello(key=b"")) == ([], codes.PERMISSION_DENIED)
            assert await pulled(a, hello(target=STRANGER)) == ([], codes.PERMISSION_DENIED)
            assert await pulled(a, hello(protocol=future)) == ([], codes.INVALID_ARGUMENT)
            assert await pulled(a, hello(transfer=2)) == ([], codes.UNAVAILABLE)
            many = await asyncio.gather(*(pulled(a, hello(transfer=number)) for number in range(5, 11)))
            assert {code for _, code in many} == {codes.UNAVAILABLE, codes.RESOURCE_EXHAUSTED}
            assert not a.transfers.source._waiting
            goes_on(a)

    asyncio.run(test())


def test_a_target_that_acknowledges_nothing_is_sent_no_more_than_a_few_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """HO3: what is under way is bounded; one that acknowledges what was never sent gains nothing."""
    monkeypatch.setattr(feed_module, "PIECE_BYTES", 1)
    monkeypatch.setattr(feed_module, "MOST_UNREAD", 3)

    async def test() -> None:
        async with End("a", SimRunner(INFO)) as a, End("b", SimRunner(INFO)) as b:
            a.add(asked().message(0))
            a.start(0, BLOCKS, len(PROMPT))
            a.export(0, 1, b)
            async with rpc.channel(a.address) as channel:
                call = transfer_pb2_grpc.TransferServiceStub(channel).Pull()
                await call.write(hello())
                await call.write(transfer_pb2.PullRequest(blocks_by=transfer_pb2.BLOCKS_BY_CONTENT))
                assert (await call.read()).HasField("head")
                numbers = [(await call.read()).blocks.number for _ in range(3)]
                assert numbers == [1, 2, 3]
                waiting = asyncio.create_task(call.read())
                await asyncio.sleep(0.3)
                assert not waiting.done()
                await call.write(transfer_pb2.PullRequest(num_read=1))
                assert (await waiting).blocks.number == 4
            goes_on(a)
            assert a.step(HandoffOrders()).step_id

    asyncio.run(test())
