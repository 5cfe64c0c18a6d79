"""The server's side of gRPC over the virtual network: stands in for `signalbox.links.rpc.Server`."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple, NoReturn

import grpc

from tests.simulation.ring.clock import Process, current_process
from tests.simulation.ring.frames import Begin, Cancel, HalfClose, Message, Metadata, Status
from tests.simulation.ring.network import End, Network


class _Details(NamedTuple):
    """What handlers are looked up by."""

    method: str
    invocation_metadata: tuple[tuple[str, str], ...] = ()


class GrpcServer:
    """As much of `grpc.aio.Server` as services are added to."""

    def __init__(self) -> None:
        self._handlers: list[Any] = []

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        """As `grpc.aio.Server.add_generic_rpc_handlers`."""
        self._handlers += handlers

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """The same handlers once more."""

    def find(self, method: str) -> Any:
        """The handler of a method; None: there is none."""
        found = (handler.service(_Details(method)) for handler in self._handlers)
        return next((handler for handler in found if handler is not None), None)


class Server:
    """Stands in for `signalbox.links.rpc.Server`."""

    network: Network
    """Set for the time of a scenario."""

    def __init__(self, services: Sequence[str], interceptors: Sequence[Any] = (), **_: Any) -> None:
        self.grpc = GrpcServer()
        self.process: Process = current_process()
        self.is_serving = self.is_alive = False
        self._address = ""
        self.connections: list[_Connection] = []

    async def start(self, address: str, *, alive: bool = True, health_address: str = "") -> int:
        """Listens; nobody probes here."""
        self._address, self.is_alive = address, alive
        self.network.listen(address, self.process, self)
        return int(address.rpartition(":")[2])

    async def set_serving(self, serving: bool) -> None:
        """As `rpc.Server.set_serving`."""
        self.is_serving = serving

    async def set_alive(self, alive: bool) -> None:
        """As `rpc.Server.set_alive`."""
        self.is_alive = alive

    async def stop(self, grace_s: float) -> None:
        """Takes no more calls, lets running ones go on for `grace_s`, then ends them."""
        self.network.stop_listening(self._address, self.process)
        end = self.process.loop.time() + grace_s
        while self.process.loop.time() < end and any(connection.calls for connection in self.connections):
            await asyncio.sleep(0.02)
        for connection in self.connections:
            connection.close()
        self.connections.clear()

    def accept(self, end: End) -> None:
        """As `network.Server.accept`."""
        self.connections = [connection for connection in self.connections if connection.is_open]
        self.connections.append(_Connection(self, end))


class _Connection:
    """What one client has of the server."""

    def __init__(self, server: Server, end: End) -> None:
        self._server, self.end = server, end
        self.calls: dict[int, Context] = {}
        end.receiver = self

    @property
    def is_open(self) -> bool:
        return self.end.is_open

    def receive(self, frame: Any) -> None:
        """As `network.Receiver.receive`."""
        if isinstance(frame, Begin):
            self._begin(frame)
            return
        context = self.calls.get(frame.call)
        if context is None:
            return
        if isinstance(frame, Message):
            context.put(frame.raw)
        elif isinstance(frame, HalfClose):
            context.put(None)
        elif isinstance(frame, Cancel):
            context.broken()

    def broken(self, reason: str) -> None:
        """As `network.Receiver.broken`."""
        for context in list(self.calls.values()):
            context.broken()

    def close(self) -> None:
        """Ends all calls from this side."""
        for context in list(self.calls.values()):
            self.end.send(Status(context.number, grpc.StatusCode.UNAVAILABLE, "Cancelling all calls"))
            context.broken()
        self.end.close()

    def _begin(self, frame: Begin) -> None:
        handler = self._server.grpc.find(frame.method)
        if handler is None:
            self.end.send(Status(frame.call, grpc.StatusCode.UNIMPLEMENTED, "Method not found!"))
            return
        context = self.calls[frame.call] = Context(self.end, frame.call, handler, self.calls)
        context.task = asyncio.get_running_loop().create_task(context.run())


class Context:
    """One call, as its handler sees it: as much of `grpc.aio.ServicerContext` as the shells use."""

    def __init__(self, end: End, number: int, handler: Any, calls: dict[int, Context]) -> None:
        self._end, self.number, self._handler, self._calls = end, number, handler, calls
        self._inbox: deque[bytes | None] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._has_metadata = self._is_over = self._is_broken = False
        self.task: asyncio.Task[None]

    def auth_context(self) -> dict[str, list[bytes]]:
        """Links here are plaintext."""
        return {}

    def put(self, raw: bytes | None) -> None:
        """A message came; None: the client has said all."""
        self._inbox.append(raw)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def broken(self) -> None:
        """The client cancelled, or is gone: the reader sees an end, and the handler is cancelled."""
        if self._is_over:
            return
        self._is_broken = True
        self._calls.pop(self.number, None)
        self._inbox.clear()
        self.put(None)
        self.task.cancel()

    async def run(self) -> None:
        """Runs the handler to its end, and says how it ended."""
        try:
            await self._handle()
        except grpc.aio.AbortError:
            return
        except asyncio.CancelledError:
            self._finish(grpc.StatusCode.CANCELLED, "")
            return
        except Exception as error:
            self._finish(grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}")
            return
        self._finish(grpc.StatusCode.OK, "")

    async def _handle(self) -> None:
        handler = self._handler
        if handler.request_streaming:
            work = handler.stream_stream(self._requests(), self)
            if inspect.isasyncgen(work):
                async for response in work:
                    await self.write(response)
            else:
                await work
            return
        request = await self._next()
        if request is None:
            return
        if handler.response_streaming:
            work = handler.unary_stream(request, self)
            if inspect.isasyncgen(work):
                async for response in work:
                    await self.write(response)
            else:
                await work
        else:
            await self.write(await handler.unary_unary(request, self))

    async def _requests(self) -> AsyncIterator[Any]:
        while (request := await self._next()) is not None:
            yield request

    async def _next(self) -> Any:
        while not self._inbox:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        raw = self._inbox[0]
        if raw is None:
            return None
        self._inbox.popleft()
        parse = self._handler.request_deserializer
        return raw if parse is None else parse(raw)

    def _finish(self, code: grpc.StatusCode, details: str, trailing: Any = ()) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._calls.pop(self.number, None)
        if not self._is_broken:
            self._end.send(Status(self.number, code, details, tuple(trailing)))

    # -- as `grpc.aio.ServicerContext` --

    async def write(self, response: Any) -> None:
        """Sends a response."""
        await asyncio.sleep(0)
        if self._is_over or self._is_broken:
            raise grpc.aio.InternalError("the call has ended")
        self._has_metadata = True
        make = self._handler.response_serializer
        self._end.send(Message(self.number, response if make is None else make(response)))

    async def read(self) -> Any:
        """The next request, or EOF."""
        request = await self._next()
        return grpc.aio.EOF if request is None else request  # type: ignore[attr-defined]

    async def send_initial_metadata(self, metadata: object) -> None:
        """Says that the call is taken."""
        if not self._has_metadata and not self._is_broken:
            self._has_metadata = True
            self._end.send(Metadata(self.number))

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Sequence[tuple[str, str]] = ()
    ) -> NoReturn:
        """Ends the call with a status."""
        self._finish(code, details, trailing_metadata)
        raise grpc.aio.AbortError

    def cancel(self) -> bool:
        """Ends the call from this side."""
        self._finish(grpc.StatusCode.CANCELLED, "")
        return self.task.cancel()

    def cancelled(self) -> bool:
        """Its client is gone."""
        return self._is_broken

    def done(self) -> bool:
        """It has ended."""
        return self._is_over

    def peer(self) -> str:
        """Who calls."""
        return f"ipv4:{self._end.peer.process.host}:1"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """None is sent."""
        return ()
