"""How channels and servers are made, the same at both ends of every link.

The two ends must agree: a client that pings more often than the server permits is cut off (`too_many_pings`), and a
message above either side's limit breaks the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NoReturn, TypeVar

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from signalbox.errors import (
    InternalError,
    SignalboxError,
    StartupError,
    UnavailableError,
    retry_after_of,
    status_of,
)
from signalbox.links.readable import ReadableRequests
from signalbox.links.tls.guard import RoleGuard
from signalbox.links.tls.identity import Identity, name_options, ours
from signalbox.links.tls.roles import Role

MAX_MESSAGE_BYTES = 64 << 20
"""Far above any step (below 256 KB); a payload is bounded by the longest context."""
KEEPALIVE_TIME_MS = 20_000
KEEPALIVE_TIMEOUT_MS = 10_000

R = TypeVar("R")

RETRY_AFTER = "retry-after"
"""Trailing metadata of a call that was refused for a limit, as in HTTP."""

MAX_ERROR_CHARS, MAX_FIELD_CHARS = 1000, 200
"""Most characters that a refused call is told: clients take 8 KiB of metadata, a character up to 12 bytes of it."""

LIVENESS = "liveness"
"""Name for health checks that ask whether the process works, whatever it has lost: NOT_SERVING asks for a restart."""

_COMMON: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
_CLIENT: list[tuple[str, Any]] = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # The machine's proxy is for addresses outside: it reaches neither loopback nor the ring.
    ("grpc.enable_http_proxy", 0),
    # Each link is one stream of its own; sharing sockets between channels would couple them.
    ("grpc.use_local_subchannel_pool", 1),
]
_SERVER: list[tuple[str, Any]] = [
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_TIME_MS // 2),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", KEEPALIVE_TIME_MS // 2),
]


def channel(address: str, role: Role | None = None) -> grpc.aio.Channel:
    """A channel to `host:port` inside the cluster, whose server has to be a `role` where links are mutual TLS; None: a
    face of clients, in plaintext."""
    identity = ours() if role is not None else None
    if identity is None or role is None:
        return grpc.aio.insecure_channel(address, options=_COMMON + _CLIENT)
    options = _COMMON + _CLIENT + name_options(role)
    return grpc.aio.secure_channel(address, identity.for_channel(), options=options)


def secure_channel(address: str, credentials: grpc.ChannelCredentials) -> grpc.aio.Channel:
    """A channel to a face of clients at `host:port`, by TLS."""
    return grpc.aio.secure_channel(address, credentials, options=_COMMON + _CLIENT)


class Server:
    """A grpc.aio server with health and reflection. Health is NOT_SERVING until `set_serving(True)`; apart from it,
    LIVENESS says whether the process works."""

    def __init__(
        self,
        services: Sequence[str],
        interceptors: Sequence[Any] = (),
        *,
        reuse_port: bool = False,
        max_receive_bytes: int = MAX_MESSAGE_BYTES,
        identity: Identity | None = None,
        is_link: bool = True,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        """`services` are full names, e.g. `signalbox.v1.SchedulerService`. With `reuse_port` several processes may
        listen on one port, and each connection goes to any one of them; without it the second is refused. A message
        above `max_receive_bytes` ends its call with RESOURCE_EXHAUSTED. `is_link`: for the ring itself, by mutual TLS
        where this process has an identity; else for clients, who are shown that of `identity`; None: plaintext.
        `options`: further ones of grpc's."""
        self._identity = ours() if is_link else identity
        guards: list[RoleGuard] = []
        if is_link and self._identity is not None:
            guards = [RoleGuard(self._identity.domain)]
        # The others get to see nothing but messages.
        interceptors = [*guards, ReadableRequests(), *interceptors]
        chosen = dict([*_COMMON, *_SERVER, ("grpc.so_reuseport", int(reuse_port)), *options])
        chosen["grpc.max_receive_message_length"] = max_receive_bytes
        self.grpc = grpc.aio.server(options=list(chosen.items()), interceptors=list(interceptors))
        self._names = ["", *services]
        self._probes: grpc.aio.Server | None = None
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.grpc)
        reflection.enable_server_reflection(
            [*services, health.SERVICE_NAME, reflection.SERVICE_NAME], self.grpc
        )

    async def start(self, address: str, *, alive: bool = True, health_address: str = "") -> int:
        """Listens on `host:port` (port 0: any) and returns the port. Raises StartupError when it cannot.

        `alive` is the first answer for LIVENESS: False for a service that still has to load something. At
        `health_address`, unless it is empty, nothing but health checks is answered, in plaintext.
        """
        port = _listen(self.grpc, address, self._identity)
        if health_address:
            self._probes = grpc.aio.server()
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._probes)
            _listen(self._probes, health_address, None)
        await self.set_serving(False)
        await self.set_alive(alive)
        await self.grpc.start()
        if self._probes is not None:
            await self._probes.start()
        return port

    async def set_serving(self, serving: bool) -> None:
        """Answers health checks of every service accordingly."""
        for name in self._names:
            await self._health.set(name, _status(serving))

    async def set_alive(self, alive: bool) -> None:
        """Answers health checks of LIVENESS accordingly."""
        await self._health.set(LIVENESS, _status(alive))

    async def stop(self, grace_s: float) -> None:
        """Says NOT_SERVING, lets running calls go on for `grace_s`, then ends them."""
        await self._health.enter_graceful_shutdown()
        await self.grpc.stop(grace_s)
        if self._probes is not None:
            await self._probes.stop(None)


def _listen(server: grpc.aio.Server, address: str, identity: Identity | None) -> int:
    """The port. Raises StartupError when it cannot be had."""
    try:
        if identity is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, identity.for_server())
    except RuntimeError:
        message = f"cannot listen on {address}: the port is in use or the address is not ours"
        raise StartupError(message) from None


async def run_until_first_ends(*work: Coroutine[Any, Any, None]) -> None:
    """Runs all of `work`, the reader and the writer of a stream, until one ends; cancels the others, and raises what
    the first one raised. A write to a stream that has just ended is such an end, not an error, as is a stream that was
    cancelled.
    """
    tasks = [asyncio.create_task(item) for item in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            with contextlib.suppress(asyncio.InvalidStateError):
                if not task.cancelled():
                    task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _status(good: bool) -> health_pb2.HealthCheckResponse.ServingStatus:
    return health_pb2.HealthCheckResponse.SERVING if good else health_pb2.HealthCheckResponse.NOT_SERVING


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: SignalboxError) -> NoReturn:
    """Ends the call with the status of `error`. The field it names travels in the trailing metadata, with the whole
    seconds after which trying again makes sense. What cannot travel so, as another service said it perhaps, is cut."""
    field = ascii(error.field)[1:-1][:MAX_FIELD_CHARS]
    trailing = [("signalbox-error", type(error).__name__), ("signalbox-field", field)]
    if (seconds := retry_after_of(error)) is not None:
        trailing.append((RETRY_AFTER, str(seconds)))
    message = error.message[:MAX_ERROR_CHARS]
    await context.abort(status_of(error).grpc, message, trailing_metadata=tuple(trailing))
    raise AssertionError("context.abort returned")


async def end_with(context: grpc.aio.ServicerContext[Any, Any], error: SignalboxError | None) -> None:
    """Ends a call that was accepted and has had its terminal event, which said `error`: with OK, or, where the process
    ends for want of memory, with a status that has clients and proxies try again elsewhere (Z5)."""
    if isinstance(error, UnavailableError) and error.retry_after_s is not None:
        await abort(context, error)


async def answer(context: grpc.aio.ServicerContext[Any, Any], work: Callable[[], Awaitable[R]]) -> R:
    """Runs a unary handler and maps its errors: ours as they are, any other to INTERNAL without its inside."""
    try:
        return await work()
    except SignalboxError as error:
        await abort(context, error)
    except grpc.aio.AbortError:
        raise
    except Exception as error:
        await abort(context, InternalError(f"internal error ({type(error).__name__})"))
