"""What is no message ends its call by name, instead of an unknown error to the other end and a stack in our log."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError

from signalbox.errors import DeadlineExceededError, InvalidRequestError, status_of
from signalbox.links.handlers import behaviour_of, remade

Context = grpc.aio.ServicerContext[Any, Any]
EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
"""What `read_message` returns behind the last one."""
FIRST_MESSAGE_S = 10.0
"""Longest time for which a stream may be open before its first message has come."""
T = TypeVar("T")


class ReadableRequests(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Ends a call with INVALID_ARGUMENT when a message of it cannot be parsed."""

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """The handler, which gets nothing but messages."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_deserializer is None:
            return handler  # it takes bytes as they come
        name = handler_call_details.method.rpartition("/")[2]
        behaviour = behaviour_of(handler)
        if handler.request_streaming:
            return remade(handler, _of_stream(behaviour, name))
        return remade(handler, _of_one(behaviour, name), _Parser(handler.request_deserializer))


async def first_message(requests: AsyncIterator[T]) -> T | None:
    """The first message of a stream that another process opened; None: it ended without one. Raises
    DeadlineExceededError when none comes within FIRST_MESSAGE_S."""
    try:
        async with asyncio.timeout(FIRST_MESSAGE_S):
            return await anext(aiter(requests), None)
    except TimeoutError:
        raise DeadlineExceededError(
            f"the stream has been open for {FIRST_MESSAGE_S:g} s without a message"
        ) from None


async def read_message(call: Any) -> Any:
    """The next message of a call of ours; EOF when it has ended. Raises ConnectionError for one that cannot be
    parsed, of which grpc makes None."""
    message = await call.read()
    if message is None:
        raise ConnectionError("it sent what is no message")
    return message


class _Unreadable:
    """Stands for a message that could not be parsed."""


class _Parser:
    """A deserializer that never raises: grpc would answer by itself, before a handler is asked."""

    def __init__(self, parse: Callable[[bytes], Any]) -> None:
        self._parse = parse

    def __call__(self, data: bytes) -> Any:
        try:
            return self._parse(data)
        except DecodeError:
            return _Unreadable()


def _of_one(behaviour: Callable[..., Any], name: str) -> Callable[..., Any]:
    """For a handler that gets one message; it may be a generator of answers."""
    if not inspect.isasyncgenfunction(behaviour):

        async def call(request: Any, context: Context) -> Any:
            if isinstance(request, _Unreadable):
                await _refuse(context, name)
            return await behaviour(request, context)

        return call

    async def answers(request: Any, context: Context) -> Any:
        if isinstance(request, _Unreadable):
            await _refuse(context, name)
        async for answer in behaviour(request, context):
            yield answer

    return answers


def _of_stream(behaviour: Callable[..., Any], name: str) -> Callable[..., Any]:
    """For a handler that gets many, and finds out when it reads one; it may be a generator of answers."""
    if not inspect.isasyncgenfunction(behaviour):

        async def call(requests: Any, context: Context) -> Any:
            try:
                return await behaviour(requests, context)
            except DecodeError:
                await _refuse(context, name)

        return call

    async def answers(requests: Any, context: Context) -> Any:
        try:
            async for answer in behaviour(requests, context):
                yield answer
        except DecodeError:
            await _refuse(context, name)

    return answers


async def _refuse(context: Context, name: str) -> NoReturn:
    error = InvalidRequestError(f"a message to {name} cannot be parsed")
    await context.abort(status_of(error).grpc, error.message)
    raise AssertionError("context.abort returned")
