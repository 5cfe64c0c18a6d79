"""Asking services whether they are ready."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping, Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from signalbox.cli.ring.supervisor import split_address
from signalbox.links import rpc
from signalbox.links.tls.client_files import ClientFiles
from signalbox.links.tls.roles import Role

POLL_S = 0.1
PROBE_TIMEOUT_S = 5.0


async def wait_ready(address: str, *, is_tls: bool = False) -> None:
    """Returns when GET /ready at `host:port` is answered with 200."""
    while (await http_get(address, "/ready", is_tls=is_tls))[0] != 200:
        await asyncio.sleep(POLL_S)


async def tell_ready(
    address: str, names: Sequence[str], tell: Callable[[str], None], *, is_tls: bool = False
) -> None:
    """Calls `tell(name)` for each frontend that is ready. Several share the address: each connection reaches any one of
    them, whose answer has its name."""
    if len(names) == 1:
        await wait_ready(address, is_tls=is_tls)
        tell(names[0])
        return
    missing = set(names)
    while missing:
        status, body = await http_get(address, "/ready", is_tls=is_tls)
        if status == 200 and (name := json.loads(body).get("name")) in missing:
            missing.remove(name)
            tell(name)
        else:
            await asyncio.sleep(POLL_S)


async def http_get(address: str, path: str, *, is_tls: bool = False) -> tuple[int, bytes]:
    """Status and body of a GET over a connection of its own; 0 when nothing answers. is_tls: whatever certificate is
    shown: it is our own frontend that we look after, and it gets no secret; it is shown this user's, if there is one.
    Raises StartupError."""
    context = ssl._create_unverified_context() if is_tls else None
    if context is not None:
        ClientFiles.chosen().show(context)
    host, port = split_address(address)
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
                return int(head.split()[1]), body
            finally:
                writer.close()
    except (OSError, ValueError, IndexError):
        return 0, b""


async def tell_serving(services: Mapping[str, str], tell: Callable[[str], None]) -> None:
    """Calls `tell(name)` when the gRPC health of a service turns SERVING; `services` are name: host:port. Those named
    worker-… are workers, the others schedulers."""
    await asyncio.gather(*(_tell_one(name, address, tell) for name, address in services.items()))


async def _tell_one(name: str, address: str, tell: Callable[[str], None]) -> None:
    role = Role.WORKER if name.startswith("worker-") else Role.SCHEDULER
    # A channel made too early would wait longer and longer between its attempts to connect.
    while not await _is_listening(address):
        await asyncio.sleep(POLL_S)
    async with rpc.channel(address, role) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while not await _is_serving(stub):
            await asyncio.sleep(POLL_S)
    tell(name)


async def _is_listening(address: str) -> bool:
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(*split_address(address))
    except OSError:
        return False
    writer.close()
    return True


async def _is_serving(stub: health_pb2_grpc.HealthStub) -> bool:
    try:
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=PROBE_TIMEOUT_S)
    except grpc.aio.AioRpcError:
        return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
