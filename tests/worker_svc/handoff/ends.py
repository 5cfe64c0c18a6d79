"""Workers without threads of steps and without a scheduler: the real core, engine and control streams, and steps that a
test writes down."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from signalbox.links import rpc
from signalbox.protocol.parts.handoff import ExportOrder, HandoffOrders
from signalbox.protocol.parts.import_start import ImportStart
from signalbox.protocol.parts.names import WorkerName
from signalbox.protocol.parts.orders import Orders
from signalbox.v1 import (
    from_frontend_pb2,
    from_worker_pb2,
    generation_pb2,
    shared_pb2,
    to_worker_pb2,
    transfer_pb2_grpc,
    worker_pb2,
)
from worker_svc.core.batch import ModelRunner
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.core.requests.request_state import SlotStatus
from worker_svc.core.step import SlotStart, StepDelta
from worker_svc.core.worker_core import WorkerCore
from worker_svc.grammar.preparation import GrammarPreparation
from worker_svc.links.output_logs import OutputLogs
from worker_svc.steps.engine import Listeners, StepEngine, Surroundings
from worker_svc.steps.handoff_coordinator import HandoffListeners, Repeated
from worker_svc.steps.items import ArrivedRequest, ArrivedStep, Item, LinkMark
from worker_svc.steps.results import StepResult
from worker_svc.transfer.channels.block_server import BlockServer
from worker_svc.transfer.channels.names import ALL, SHARED_MEMORY
from worker_svc.transfer.control.news import News
from worker_svc.transfer.control.servicer import TransferServicer
from worker_svc.transfer.control.transfers import Transfers
from worker_svc.transfer.opening import blocks_of

FRONTEND, ATTEMPT, KEY = "f", 7, b"a key"
WAIT_S = 10.0


class NoCopies:
    """Makes none."""

    age_s = 0.0

    def begin(self, copies: Any) -> None:
        """See `Copier`."""
        raise AssertionError

    def wait(self) -> None:
        """See `Copier`."""


@dataclass
class Asked:
    """A request of a test."""

    prompt: list[int]
    payload: generation_pb2.RequestPayload
    max_tokens: int
    chain_hash: bytes
    max_drafts: int = 0

    def message(self, slot: int, leg: int = 0) -> to_worker_pb2.NewRequestData:
        """Placed, with its payload."""
        payload = generation_pb2.RequestPayload()
        payload.CopyFrom(self.payload)
        payload.token_ids = np.array(self.prompt, "<i4").tobytes()
        return self._message(slot, leg, payload.SerializeToString())

    def coming(self, slot: int, leg: int, transfer: int, source: End) -> to_worker_pb2.NewRequestData:
        """Taken over from `source`."""
        message = self._message(slot, leg, b"")
        origin = message.import_from
        origin.transfer, origin.key, origin.address = transfer, KEY, source.address
        origin.source.worker_id, origin.source.worker_instance = source.name
        return message

    def _message(self, slot: int, leg: int, payload: bytes) -> to_worker_pb2.NewRequestData:
        has_grammar = self.payload.sampling.HasField("structured_output")
        meta = from_frontend_pb2.RequestMeta(num_prompt_tokens=len(self.prompt), has_grammar=has_grammar)
        return to_worker_pb2.NewRequestData(
            slot=slot,
            ref=shared_pb2.RequestRef(request_id="r", attempt=ATTEMPT),
            frontend_instance=FRONTEND,
            chain_hash=self.chain_hash,
            scheduler_meta=meta.SerializeToString(),
            payload=payload,
            max_tokens=self.max_tokens,
            max_draft_tokens=self.max_drafts,
            num_known_tokens=len(self.prompt),
            leg=leg,
        )


class End:
    """One worker."""

    def __init__(
        self,
        name: str,
        runner: ModelRunner,
        drafter: Drafter | None = None,
        preparation: GrammarPreparation | None = None,
        num_slots: int = 4,
        channels: str | None = None,
        names: Sequence[str] = ALL,
    ) -> None:
        """channels: host:port for blocks over TCP; empty: by none of that; None: in messages. names: what else is
        offered, and all that is taken."""
        self.name = WorkerName(name, f"instance of {name}")
        self.runner, self.loop = runner, asyncio.get_running_loop()
        self.core = WorkerCore(runner.info, num_slots, drafter)
        self.outputs = OutputLogs(self.name.instance, 1 << 20, 60.0)
        self.results: list[StepResult] = []
        self.refusals: list[str] = []
        self.news: list[News] = []
        self.events: list[from_worker_pb2.WorkerEvent] = []
        self.link, self._items = LinkMark(), deque[Item]()
        around = Surroundings(self.loop.time, self.post, NoCopies())
        listeners = Listeners(
            self._result,
            self.refusals.append,
            lambda result: None,
            lambda outputs: self.outputs.append(outputs, 0.0),
            handoffs=HandoffListeners(self._news, self.events.append, self._repeat),
        )
        self.engine = StepEngine(self.core, runner, around, listeners, preparation=preparation)
        self._servicer = TransferServicer()
        self.transfers = Transfers(
            self.name,
            runner,  # type: ignore[arg-type]
            self.outputs.unread_of,
            self.post,
            server=self._open(channels, names),
            channels=names,
        )
        self._servicer.source = self.transfers.source
        self._server = rpc.Server(["signalbox.v1.TransferService"])
        transfer_pb2_grpc.add_TransferServiceServicer_to_server(self._servicer, self._server.grpc)
        self.address = ""

    def _open(self, channels: str | None, names: Sequence[str]) -> BlockServer | None:
        memory = blocks_of(self.runner)
        if channels is None or memory is None:
            return None
        return BlockServer(memory, listen=channels or None, shares_memory=SHARED_MEMORY in names)

    async def __aenter__(self) -> End:
        self.address = f"127.0.0.1:{await self._server.start('127.0.0.1:0')}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.transfers.close()
        await self._server.stop(0)

    def post(self, item: Item) -> None:
        """Any thread may call it."""
        self.loop.call_soon_threadsafe(self._take, item)

    def _take(self, item: Item) -> None:
        while self.engine.must_finish_before(item):
            self.engine.finish()
        self.engine.take(item)
        self.engine.finish_all()
        self.core.table.check_integrity()

    def _result(self, result: StepResult) -> None:
        self.results.append(result)
        self.outputs.append(result.outputs, 0.0)

    def _news(self, news: News) -> None:
        self.news.append(news)
        self.transfers.take(news)

    def _repeat(self, repeated: Repeated) -> None:
        self.outputs.repeat(repeated.frontend_instance, repeated.batches, repeated.leg, 0.0)

    # -- what a scheduler says --

    def add(self, message: to_worker_pb2.NewRequestData) -> None:
        """A request comes."""
        self._take(ArrivedRequest(self.link, message))

    def step(self, orders: Orders | None = None, **changes: Any) -> from_worker_pb2.ModelRunnerOutput:
        """A step runs, which has to fit."""
        self.try_step(orders, **changes)
        assert not self.refusals, self.refusals
        return self.results[-1].report

    def try_step(self, orders: Orders | None = None, **changes: Any) -> None:
        """A step comes."""
        if orders is not None:
            changes["orders"] = {type(orders): orders}
        delta = StepDelta(self.core.last_step_id + 1, 1, **changes)
        message = to_worker_pb2.SchedulerOutput(step_id=delta.step_id)
        self._take(ArrivedStep(self.link, message, self.loop.time(), _delta=delta))

    def start(self, slot: int, blocks: list[int], length: int, resumed: bool = False) -> None:
        """A request begins, with all blocks that it will ever need."""
        start = SlotStart(slot, np.array(blocks, np.int32), 0, length, self.groups(blocks))
        self.step(resumed=[start] if resumed else [], started=[] if resumed else [start])

    def groups(self, blocks: list[int]) -> tuple[tuple[int, Any], ...]:
        """Tables of the other groups: blocks of the same numbers."""
        return tuple((0, np.array(blocks, np.int32)) for _ in self.runner.info.groups)

    def export(self, slot: int, transfer: int, target: End, **others: Any) -> None:
        """Lets `target` read a slot."""
        self.step(HandoffOrders(exports=[ExportOrder(slot, transfer, target.name, KEY)], **others))

    def give(self, slot: int, blocks: list[int], num_found: int = 0) -> None:
        """A request that is taken over gets its blocks."""
        start = ImportStart(slot, blocks, num_found, tuple((0, blocks) for _ in self.runner.info.groups))
        self.step(HandoffOrders(import_starts=[start]))

    def commit(self, slot: int) -> from_worker_pb2.ModelRunnerOutput:
        """An import counts, and runs to the end of what is known."""
        table = self.core.table
        begin, end = int(table.num_computed[slot]), int(table.num_tokens[slot])
        return self.step(HandoffOrders(committed_slots=[slot]), chunks=[(slot, begin, end - begin)])

    # -- what comes of it --

    async def grammar(self) -> None:
        """Waits until a grammar is ready."""
        while not self.core.ready_slots():
            await asyncio.sleep(0.001)

    async def until(self, kind: str) -> Any:
        """The next event of a kind, which is waited for."""
        end = self.loop.time() + WAIT_S
        while self.loop.time() < end:
            for number, event in enumerate(self.events):
                if event.WhichOneof("event") == kind:
                    return getattr(self.events.pop(number), kind)
            await asyncio.sleep(0.001)
        raise AssertionError(f"no {kind}, but {self.events}")

    def tell(self, seen: dict[int, int]) -> bool:
        """Adds output tokens that the frontend has not acknowledged to those that it has `seen`, by count: what is
        there is the same, and there is no hole. Returns whether the request has ended."""
        for start, values in (row for batch in self.batches() for row in rows_of(batch)):
            assert start <= len(seen), "a hole"
            for number, token in enumerate(values, start):
                assert seen.setdefault(number, token) == token
        ends = [end for batch in self.batches() for end in batch.finished]
        assert not any(end.HasField("error") for end in ends), ends
        return bool(ends)

    def batches(self) -> list[worker_pb2.OutputBatch]:
        """All outputs that were not acknowledged."""
        log = self.outputs._of(FRONTEND, 0.0).log
        return [worker_pb2.OutputBatch.FromString(raw) for _, raw in log.after(0)]

    def read(self, count: int | None = None) -> None:
        """The frontend acknowledges so many outputs, or all."""
        log = self.outputs._of(FRONTEND, 0.0).log
        numbers = [number for number, _ in log.after(0)]
        for number in numbers[:count]:
            log.acknowledge(number)


def rows_of(batch: worker_pb2.OutputBatch) -> list[tuple[int, list[int]]]:
    """(start, tokens) of each row."""
    starts = np.frombuffer(batch.starts, "<u4").tolist()
    counts = np.frombuffer(batch.counts, np.uint8).tolist() if batch.counts else [1] * len(starts)
    tokens = np.frombuffer(batch.token_ids, "<i4").tolist()
    ends = np.cumsum(counts).tolist() if counts else []
    return [
        (start, tokens[end - count : end]) for start, count, end in zip(starts, counts, ends, strict=True)
    ]


async def hand_over(
    asked: Asked, source: tuple[End, int], target: tuple[End, int], transfer: int, leg: int, blocks: list[int]
) -> bool:
    """Moves a request that runs from one slot to another, and commits it. False: it has ended where it was."""
    (a, from_slot), (b, to_slot) = source, target
    b.add(asked.coming(to_slot, leg, transfer, a))
    b.give(to_slot, blocks)
    a.export(from_slot, transfer, b)
    if a.core.table.status[from_slot] != SlotStatus.ENDED:
        await b.until("import_ready")
    a.step(HandoffOrders(frozen_slots=[from_slot]))
    if a.core.table.status[from_slot] == SlotStatus.ENDED:
        b.step(finished_slots=[to_slot])
        return False
    ended = await b.until("import_ended")
    assert not ended.HasField("error"), ended.error
    b.commit(to_slot)
    a.step(finished_slots=[from_slot])
    return True
