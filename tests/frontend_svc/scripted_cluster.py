"""A scheduler and a worker on real gRPC servers that do what a test scripts, instead of what they should."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from signalbox.links import rpc
from signalbox.links.heartbeat import HEARTBEAT_S
from signalbox.v1 import from_frontend_pb2, scheduler_pb2, shared_pb2, to_frontend_pb2
from signalbox.v1 import generation_pb2 as generation
from signalbox.v1 import worker_pb2 as worker
from signalbox.v1.scheduler_pb2_grpc import SchedulerServiceServicer, add_SchedulerServiceServicer_to_server
from signalbox.v1.worker_pb2_grpc import WorkerServiceServicer, add_WorkerServiceServicer_to_server

T = TypeVar("T")
END = None
"""Put into a link's outbox, it ends the stream."""
NOTHING = worker.OutputBatch()


async def speak(
    outbox: asyncio.Queue[T | None], heartbeat: T, speaker: ScriptedScheduler | ScriptedWorker
) -> AsyncIterator[T]:
    """What the outbox gives, and heartbeats, unless the speaker is stopped."""
    while True:
        try:
            item = await asyncio.wait_for(outbox.get(), HEARTBEAT_S)
        except TimeoutError:
            item = heartbeat
        while speaker.is_stopped:
            await asyncio.sleep(0.01)
        if item is END:
            return
        yield item


class ScriptedScheduler(SchedulerServiceServicer):
    """Records what frontends say; `on_operation` answers, by default with a placement."""

    def __init__(self) -> None:
        self.server = rpc.Server(["signalbox.v1.SchedulerService"])
        self.hellos: list[from_frontend_pb2.FrontendHello] = []
        self.operations: asyncio.Queue[from_frontend_pb2.FrontendOperation] = asyncio.Queue()
        self.directory = to_frontend_pb2.WorkerDirectory()
        self.outbox: asyncio.Queue[to_frontend_pb2.AttachFrontendResponse | None] = asyncio.Queue()
        self.on_operation: Callable[[from_frontend_pb2.FrontendOperation], None] = lambda operation: None
        self.num_heartbeats = 0
        self.term = 1
        self.is_stopped = False
        """Says nothing any more, and ends nothing."""
        add_SchedulerServiceServicer_to_server(self, self.server.grpc)

    async def FindLeader(self, request: Any, context: Any) -> Any:  # noqa: N802
        return scheduler_pb2.FindLeaderResponse(is_leader=not self.is_stopped, scheduler_epoch=self.term)

    async def AttachFrontend(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        outbox = self.outbox = asyncio.Queue()
        outbox.put_nowait(
            to_frontend_pb2.AttachFrontendResponse(workers=self.directory, scheduler_epoch=self.term)
        )
        reader = asyncio.create_task(self._read(requests))
        try:
            async for response in speak(outbox, to_frontend_pb2.AttachFrontendResponse(), self):
                yield response
        finally:
            reader.cancel()

    async def _read(self, requests: Any) -> None:
        async for request in requests:
            self.num_heartbeats += not (request.operations or request.HasField("hello"))
            if request.HasField("hello"):
                self.hellos.append(request.hello)
            for operation in request.operations:
                self.operations.put_nowait(operation)
                self.on_operation(operation)

    def send(self, **fields: Any) -> None:
        self.outbox.put_nowait(to_frontend_pb2.AttachFrontendResponse(**fields))

    def place(self, ref: shared_pb2.RequestRef, num_cached_tokens: int = 0) -> None:
        placed = to_frontend_pb2.RequestPlaced(ref=ref, worker_id="w", num_cached_tokens=num_cached_tokens)
        self.send(placed=[placed])

    def lose(self, ref: shared_pb2.RequestRef) -> None:
        self.send(lost=[to_frontend_pb2.RequestLost(ref=ref, reason="its worker died")])

    def reject(
        self, ref: shared_pb2.RequestRef, code: str, message: str, name: str = "", retry_after_ms: int = 0
    ) -> None:
        error = generation.Error(code=code, message=message, field=name, retry_after_ms=retry_after_ms)
        self.send(rejected=[to_frontend_pb2.RequestRejected(ref=ref, error=error)])

    def break_link(self) -> None:
        self.outbox.put_nowait(END)

    async def next(self, kind: str) -> Any:
        """The next operation, which has to be of this kind."""
        operation = await asyncio.wait_for(self.operations.get(), 5)
        assert operation.WhichOneof("operation") == kind, operation
        return getattr(operation, kind)


class ScriptedWorker(WorkerServiceServicer):
    """Numbers batches, keeps them until they are acknowledged, sends them again on a new stream."""

    def __init__(self) -> None:
        self.server = rpc.Server(["signalbox.v1.WorkerService"])
        self.instance = "worker-process-1"
        self.hellos: list[worker.StreamOutputsRequest] = []
        self.acknowledged = 0
        self.log_number = 1
        self.orders: list[tuple[int, int, int]] = []
        """Attempt, action and count of what it was told while there was no scheduler."""
        self.is_stopped = False
        """Says nothing any more, and ends nothing."""
        self.log: list[worker.OutputBatch] = []
        self.sequence = 0
        self.outbox: asyncio.Queue[worker.OutputBatch | None] = asyncio.Queue()
        add_WorkerServiceServicer_to_server(self, self.server.grpc)

    async def StreamOutputs(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        hello = await anext(aiter(requests))
        self.hellos.append(hello)
        self._acknowledge(hello)
        reader = asyncio.create_task(self._read(requests))
        outbox = self.outbox = asyncio.Queue()
        try:
            while self.is_stopped:
                await asyncio.sleep(0.01)
            yield worker.StreamOutputsResponse(
                worker_instance=self.instance, log_number=self.log_number, batches=self.log
            )
            async for batch in speak(outbox, NOTHING, self):
                yield worker.StreamOutputsResponse(batches=[] if batch is NOTHING else [batch])
        finally:
            reader.cancel()

    async def _read(self, requests: Any) -> None:
        async for request in requests:
            self._acknowledge(request)

    def _acknowledge(self, request: worker.StreamOutputsRequest) -> None:
        self.orders += [(each.attempt, each.action) for each in request.operations]
        self.acknowledged = max(self.acknowledged, request.acknowledged)
        self.log = [batch for batch in self.log if batch.sequence > self.acknowledged]

    def break_link(self) -> None:
        self.outbox.put_nowait(END)

    def emit(self, *rows: Row) -> None:
        """One step's output."""
        self.sequence += 1
        batch = make_batch(self.sequence, rows)
        self.log.append(batch)
        self.outbox.put_nowait(batch)


@dataclass
class Row:
    """What a step made for one request."""

    attempt: int
    start: int
    token_ids: Iterable[int] = ()
    reason: int = 0
    """Not 0: the request ended with this step."""
    error: generation.Error | None = None
    logprobs: list[generation.TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[generation.TokenLogprobs] = field(default_factory=list)
    """Of the prompt tokens from `prompt_start` on."""
    prompt_start: int = 1
    vector: bytes = b""
    leg: int = 0


def make_batch(sequence: int, rows: Iterable[Row]) -> worker.OutputBatch:
    rows = [Row(**{**vars(row), "token_ids": list(row.token_ids)}) for row in rows]
    made = [row for row in rows if row.token_ids]
    tokens = [token for row in made for token in row.token_ids]
    counts = bytes(len(list(row.token_ids)) for row in made)
    return worker.OutputBatch(
        sequence=sequence,
        attempts=struct.pack(f"<{len(made)}I", *(row.attempt for row in made)),
        starts=struct.pack(f"<{len(made)}I", *(row.start for row in made)),
        counts=b"" if set(counts) <= {1} else counts,
        token_ids=struct.pack(f"<{len(tokens)}i", *tokens),
        legs=struct.pack(f"<{len(made)}I", *(row.leg for row in made))
        if any(row.leg for row in made)
        else b"",
        finished=[
            worker.OutputFinished(
                attempt=row.attempt,
                reason=row.reason,  # type: ignore[arg-type]
                num_output_tokens=row.start + len(list(row.token_ids)),
                error=row.error,
                leg=row.leg,
            )
            for row in rows
            if row.reason
        ],
        logprobs=[
            worker.OutputLogprobs(attempt=row.attempt, tokens=row.logprobs) for row in rows if row.logprobs
        ],
        prompt_logprobs=[
            worker.OutputPromptLogprobs(
                attempt=row.attempt, start=row.prompt_start, tokens=row.prompt_logprobs, leg=row.leg
            )
            for row in rows
            if row.prompt_logprobs
        ],
        vectors=[worker.OutputVector(attempt=row.attempt, values=row.vector) for row in rows if row.vector],
    )


class Cluster:
    """One scripted scheduler with one scripted worker, known to it."""

    def __init__(self, fingerprint: str, vocab_size: int) -> None:
        self.scheduler = ScriptedScheduler()
        self.worker = ScriptedWorker()
        self.model = shared_pb2.ModelEntry(
            model="toy",
            max_model_len=256,
            block_size=16,
            max_request_tokens=200,
            vocab_size=vocab_size,
            tokenizer_fingerprint=fingerprint,
        )
        self.scheduler_port = 0
        self.worker_port = 0

    async def start(self) -> None:
        self.worker_port = await self.worker.server.start("127.0.0.1:0")
        self.scheduler.directory = to_frontend_pb2.WorkerDirectory(workers=[self.entry()])
        self.scheduler_port = await self.scheduler.server.start("127.0.0.1:0")

    async def stop(self) -> None:
        await asyncio.gather(self.scheduler.server.grpc.stop(0), self.worker.server.grpc.stop(0))

    def entry(self) -> to_frontend_pb2.WorkerEntry:
        return to_frontend_pb2.WorkerEntry(
            worker_id="w",
            worker_instance=self.worker.instance,
            address=f"127.0.0.1:{self.worker_port}",
            model=self.model,
        )

    def serve(
        self,
        output: Callable[[generation.RequestPayload], list[int]],
        reason: int = 2,
        logprobs: Sequence[generation.TokenLogprobs] = (),
    ) -> None:
        """Places every submit and answers it with the tokens that `output` returns, one per step."""

        def answer(operation: from_frontend_pb2.FrontendOperation) -> None:
            if operation.WhichOneof("operation") != "submit":
                return
            submit = operation.submit
            payload = generation.RequestPayload.FromString(submit.payload)
            self.scheduler.place(submit.ref)
            tokens = output(payload)
            prior = payload.num_prior_output_tokens
            for index, token in enumerate(tokens):
                last = index == len(tokens) - 1
                row = Row(submit.ref.attempt, prior + index, [token], reason if last else 0)
                self.worker.emit(replace(row, logprobs=list(logprobs[index : index + 1])))

        self.scheduler.on_operation = answer
