"""A load bench's way to a frontend of ours, over gRPC: as little work per token as there can be."""

from __future__ import annotations

import asyncio
import time

from signalbox.benchmarks.load.h2 import H2Connection
from signalbox.benchmarks.load.record import Record
from signalbox.benchmarks.load.workload import GREEDY, Draw, Plan
from signalbox.cli.ring.supervisor import split_address
from signalbox.client import Client
from signalbox.errors import (
    DeadlineExceededError,
    InternalError,
    InvalidRequestError,
    UnavailableError,
    from_code,
)
from signalbox.links.tls.client_files import ClientFiles
from signalbox.links.tls.schemes import SECURE
from signalbox.v1 import frontend_pb2, generation_pb2

MAX_CALLS = 64
"""Calls of one connection at a time: what frontends take."""
PATH = "/signalbox.v1.GenerationService/Generate"


class GrpcLink:
    """A frontend at `host:port`."""

    def __init__(
        self,
        address: str,
        model: str = "",
        *,
        draw: Draw = GREEDY,
        connections: int = 1,
        timeout_s: float = 600,
        files: ClientFiles | None = None,
    ) -> None:
        """An empty `model` is the only one served. Several connections reach several frontends on one port; there are
        more where MAX_CALLS of each are open. files: what is believed and shown; None: plaintext."""
        self._address, self._model, self._timeout_s = address, model, timeout_s
        self._draw = draw.fields()
        self._connections: list[H2Connection | None] = [None] * connections
        self._turn = 0
        self._opening = asyncio.Lock()
        self._files = files

    async def find_model(self) -> str:
        """Raises UnavailableError when nothing answers, InvalidRequestError when a model has to be named."""
        async with self._client() as client:
            served = [model.id for model in await client.list_models()]
        self._model = choose_model(self._model, served, self._address)
        return self._model

    def _client(self) -> Client:
        files = self._files
        if files is None:
            return Client(self._address)
        return Client(f"{SECURE}{self._address}", ca=files.ca, cert=files.cert, key=files.key)

    async def run(self, plan: Plan, record: Record) -> None:
        """One request; see Link."""
        sampling = generation_pb2.SamplingParams(max_tokens=plan.max_tokens, ignore_eos=True, **self._draw)
        ids = frontend_pb2.TokenIds(ids=plan.prompt)
        request = frontend_pb2.GenerateRequest(model=self._model, token_ids=ids, sampling=sampling)
        receive = _Receiver(record)
        record.sent_at = time.perf_counter()
        try:
            connection = await self._next_connection()
            trailers = await connection.call(PATH, request.SerializeToString(), receive, self._timeout_s)
            receive.end(trailers)
        except TimeoutError:
            record.fail(DeadlineExceededError(f"no end within {self._timeout_s:g} s"))
        except OSError as error:
            record.fail(UnavailableError(f"the connection to {self._address} broke: {error}"))
        finally:
            record.ended_at = record.ended_at or time.perf_counter()

    async def close(self) -> None:
        """Cancels what still runs."""
        for connection in self._connections:
            if connection is not None:
                connection.close()

    async def _next_connection(self) -> H2Connection:
        """One with room for a call, in turn; opened again if it broke, or anew if there is none."""
        async with self._opening:
            for _ in self._connections:
                self._turn = (self._turn + 1) % len(self._connections)
                connection = self._connections[self._turn]
                if connection is None or not connection.is_open:
                    connection = self._connections[self._turn] = await self._open()
                if connection.num_calls < MAX_CALLS:
                    return connection
            connection = await self._open()
            self._connections.append(connection)
            return connection

    async def _open(self) -> H2Connection:
        host, port = split_address(self._address)
        loop = asyncio.get_running_loop()
        context = None if self._files is None else self._files.context()
        if context is not None:
            context.set_alpn_protocols(["h2"])
        _, connection = await loop.create_connection(
            lambda: H2Connection(self._address), host, port, ssl=context
        )
        return connection


class _Receiver:
    """Writes down the messages of one request as they come."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._is_finished = False

    def __call__(self, data: bytes, now: float) -> None:
        message = frontend_pb2.GenerateResponse.FromString(data)
        if count := len(message.token_ids):
            self._record.arrivals.append(now)
            self._record.counts.append(count)
        if message.HasField("finished"):
            self._finish(message.finished, now)

    def _finish(self, finished: frontend_pb2.Finished, now: float) -> None:
        record = self._record
        self._is_finished, record.ended_at = True, now
        record.num_output_tokens = finished.num_output_tokens
        if finished.HasField("error"):
            record.error, record.error_message = finished.error.code, finished.error.message

    def end(self, trailers: dict[str, str]) -> None:
        """The call has ended; without a last message it was refused."""
        if self._is_finished:
            return
        message = trailers.get("grpc-message", "")
        if code := trailers.get("signalbox-error"):
            self._record.fail(from_code(code, message))
        elif (status := trailers.get("grpc-status", "")) not in ("", "0"):
            self._record.error, self._record.error_message = f"grpc_{status}", message
        else:
            self._record.fail(InternalError("the stream ended before the request"))


def choose_model(wanted: str, served: list[str], address: str) -> str:
    """`wanted`, or the only one served."""
    if wanted or len(served) == 1:
        return wanted or served[0]
    if not served:
        raise UnavailableError(f"{address} serves no model yet; is a worker running? see `signalbox status`")
    raise InvalidRequestError(f"{address} serves {', '.join(served)}: choose one with --model", field="model")
