"""The client's side of gRPC over the virtual network: as much of `grpc.aio.Channel` and its calls as the shells use,
with the same manners (what is read behind a cancel raises CancelledError, who cancels a read cancels its call)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any

import grpc

from tests.simulation.ring.clock import Process
from tests.simulation.ring.frames import EOF, Begin, Cancel, HalfClose, Message, Metadata, Status
from tests.simulation.ring.network import End, Network

Serialize = Callable[[Any], bytes]
Deserialize = Callable[[bytes], Any]
NOTHING = grpc.aio.Metadata()


class Channel:
    """A connection that is made with the first call, and again with the first call after it broke."""

    def __init__(self, network: Network, process: Process, address: str) -> None:
        self._network, self._process, self._address = network, process, address
        self._end: End | None = None
        self._is_dialling = False
        self._waiting: list[Call] = []
        self._calls: dict[int, Call] = {}
        self._num_calls = 0

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Cancels what still runs."""
        for call in [*self._waiting, *self._calls.values()]:
            call.cancel()
        if self._end is not None:
            self._end.close()
            self._end = None

    def stream_stream(
        self,
        method: str,
        request_serializer: Serialize | None = None,
        response_deserializer: Deserialize | None = None,
        **_: Any,
    ) -> Callable[..., StreamCall]:
        """As `grpc.aio.Channel.stream_stream`."""

        def begin(**_: Any) -> StreamCall:
            return self._begin(StreamCall(self, method, request_serializer, response_deserializer))

        return begin

    def unary_stream(
        self,
        method: str,
        request_serializer: Serialize | None = None,
        response_deserializer: Deserialize | None = None,
        **_: Any,
    ) -> Callable[..., StreamCall]:
        """As `grpc.aio.Channel.unary_stream`."""

        def begin(request: Any, **_: Any) -> StreamCall:
            call = StreamCall(self, method, request_serializer, response_deserializer)
            call.say_all(request)
            return self._begin(call)

        return begin

    def unary_unary(
        self,
        method: str,
        request_serializer: Serialize | None = None,
        response_deserializer: Deserialize | None = None,
        **_: Any,
    ) -> Callable[..., UnaryCall]:
        """As `grpc.aio.Channel.unary_unary`."""

        def begin(request: Any, timeout: float | None = None, **_: Any) -> UnaryCall:
            call = UnaryCall(self, method, request_serializer, response_deserializer)
            call.say_all(request)
            if timeout is not None:
                asyncio.get_running_loop().call_later(timeout, call.expire)
            return self._begin(call)

        return begin

    def _begin(self, call: Any) -> Any:
        if self._end is not None:
            self._open(call)
            return call
        self._waiting.append(call)
        if not self._is_dialling:
            self._is_dialling = True
            self._network.dial(self._process, self._address, self._opened, self._failed)
        return call

    def _open(self, call: Call) -> None:
        assert self._end is not None
        self._num_calls += 1
        call.number = self._num_calls
        self._calls[call.number] = call
        self._end.send(Begin(call.number, call.method))
        call.connected(self._end)

    def _opened(self, end: End) -> None:
        self._is_dialling = False
        self._end, end.receiver = end, self
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            if not call.done():
                self._open(call)

    def _failed(self, reason: str) -> None:
        self._is_dialling = False
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            details = f"failed to connect to all addresses; last error: ipv4:{self._address}: {reason}"
            call.end(grpc.StatusCode.UNAVAILABLE, details)

    def forget(self, call: Call) -> None:
        """It has ended."""
        self._calls.pop(call.number, None)
        if call in self._waiting:
            self._waiting.remove(call)

    # -- what comes back --

    def receive(self, frame: Any) -> None:
        """As `network.Receiver.receive`."""
        call = self._calls.get(frame.call)
        if call is not None:
            call.take(frame)

    def broken(self, reason: str) -> None:
        """As `network.Receiver.broken`."""
        self._end = None
        for call in list(self._calls.values()):
            call.end(grpc.StatusCode.UNAVAILABLE, reason)


class Call:
    """What calls of all kinds have in common."""

    def __init__(
        self, channel: Channel, method: str, serialize: Serialize | None, deserialize: Deserialize | None
    ) -> None:
        self.method, self.number = method, 0
        self._channel = channel
        self._serialize, self._deserialize = serialize or bytes, deserialize or bytes
        self._end: End | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._early: list[Any] = []
        """What was said before there was a connection."""
        self._inbox: deque[bytes] = deque()
        self._status: Status | None = None
        """How it ended; what arrived before that may be unread."""
        self._is_cancelled = False
        self._has_metadata = False
        self._waiter: asyncio.Future[None] | None = None
        self._on_done: list[Callable[[Any], None]] = []

    def connected(self, end: End) -> None:
        """It stands on a connection."""
        self._end = end
        for make in self._early:
            end.send(make(self.number))
        self._early.clear()
        if not self._opened.done():
            self._opened.set_result(None)

    def say_all(self, request: Any) -> None:
        """The one request of a call that takes one."""
        raw = self._serialize(request)
        self._early += [lambda number: Message(number, raw), HalfClose]

    def take(self, frame: Any) -> None:
        """Something arrived for it."""
        if isinstance(frame, Message):
            self._has_metadata = True
            self._inbox.append(frame.raw)
        elif isinstance(frame, Metadata):
            self._has_metadata = True
        else:
            self._finish(frame)
            return
        self._wake()

    def end(self, code: grpc.StatusCode, details: str) -> None:
        """It ends from this side, or with its connection: what was not read is gone."""
        if self._status is None:
            self._inbox.clear()
            self._finish(Status(self.number, code, details))

    def _finish(self, status: Status) -> None:
        if self._status is not None:
            return
        self._status = status
        self._channel.forget(self)
        if not self._opened.done():
            self._opened.set_result(None)
        self._wake()
        for call in self._on_done:
            call(self)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def expire(self) -> None:
        """Its time is over."""
        if not self.done():
            self._say_cancel()
            self.end(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def _say_cancel(self) -> None:
        if self._end is not None:
            self._end.send(Cancel(self.number))

    # -- as `grpc.aio.Call` --

    def cancel(self) -> bool:
        """Ends it from this side."""
        if self.done():
            return False
        self._is_cancelled = True
        self._say_cancel()
        self.end(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")
        return True

    def cancelled(self) -> bool:
        """It was cancelled from this side."""
        return self._is_cancelled

    def done(self) -> bool:
        """Its status has been met, behind all that came before it."""
        return self._status is not None and not self._inbox

    def add_done_callback(self, call: Callable[[Any], None]) -> None:
        """Calls back when its status is there."""
        self._on_done.append(call)

    async def code(self) -> grpc.StatusCode:
        """Waits for its end."""
        while self._status is None:
            await self._wait()
        return self._status.code

    async def details(self) -> str:
        """Waits for its end."""
        await self.code()
        assert self._status is not None
        return self._status.details

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """Waits until the server has taken it, or it has ended."""
        while self._status is None and not self._has_metadata:
            await self._wait()
        return NOTHING

    async def wait_for_connection(self) -> None:
        """Waits until the server has taken it. Raises AioRpcError."""
        await self.initial_metadata()
        if self.done():
            self._raise_for_status()

    async def _next(self) -> bytes | None:
        """The next message, serialized; None at its end."""
        try:
            while not self._inbox and self._status is None:
                await self._wait()
        except asyncio.CancelledError:
            if not self._is_cancelled:
                self.cancel()
            raise
        return self._inbox.popleft() if self._inbox else None

    async def _wait(self) -> None:
        assert self._waiter is None, "two wait for one call"
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _raise_for_status(self) -> None:
        assert self._status is not None
        if self._is_cancelled:
            raise asyncio.CancelledError
        if self._status.code is not grpc.StatusCode.OK:
            trailing = grpc.aio.Metadata(*self._status.trailing)
            raise grpc.aio.AioRpcError(self._status.code, NOTHING, trailing, self._status.details)


class StreamCall(Call):
    """A call that streams responses, and perhaps requests."""

    async def write(self, request: Any) -> None:
        """As `grpc.aio.StreamStreamCall.write`."""
        if self.done():
            raise asyncio.InvalidStateError("RPC already finished.")
        try:
            if self._end is None:
                await asyncio.shield(self._opened)
            else:
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            if not self._is_cancelled:
                self.cancel()
            raise
        if self._status is not None:
            if self.done():
                self._raise_for_status()
            raise asyncio.InvalidStateError("RPC already finished.")
        assert self._end is not None
        self._end.send(Message(self.number, self._serialize(request)))

    async def done_writing(self) -> None:
        """As `grpc.aio.StreamStreamCall.done_writing`."""
        if self._end is None:
            self._early.append(HalfClose)
        elif not self.done():
            self._end.send(HalfClose(self.number))

    async def read(self) -> Any:
        """As `grpc.aio.StreamStreamCall.read`."""
        if self.done():
            self._raise_for_status()
            return EOF
        raw = await self._next()
        if raw is None:
            self._raise_for_status()
            return EOF
        return self._deserialize(raw)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[Any]:
        while (raw := await self._next()) is not None:
            yield self._deserialize(raw)
        self._raise_for_status()


class UnaryCall(Call, Awaitable[Any]):
    """A call with one response."""

    def __await__(self) -> Generator[Any, None, Any]:
        return self._answer().__await__()

    async def _answer(self) -> Any:
        raw = await self._next()
        while raw is not None and self._status is None:
            await self._wait()
        if raw is None or (self._status is not None and self._status.code is not grpc.StatusCode.OK):
            self._raise_for_status()
        assert raw is not None, "a call with one response had none"
        return self._deserialize(raw)
