"""Servers that stand where a service of the ring should be, with the wrong certificate, or none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from signalbox.links.tls.identity import Identity
from signalbox.links.tls.roles import Role
from signalbox.v1 import scheduler_pb2
from tests.chaos.proxy import Proxy
from tests.ports import free_ports
from tests.signalbox.links.tls.certificates import Certificates

FIND_LEADER = "/signalbox.v1.SchedulerService/FindLeader"
AHEAD_DAYS = -1.0
"""Made so many days ago: not valid before tomorrow."""


class Impostor(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Says that it leads, takes all other calls and answers none, and counts who believed it."""

    def __init__(self, port: int, proxy: Proxy, *, leads: bool = True) -> None:
        self.address = f"127.0.0.1:{port}"
        self.calls: list[str] = []
        """Methods that somebody has called, who believed the certificate thus."""
        self._proxy, self._leads = proxy, leads

    @property
    def num_dials(self) -> int:
        """Connections that were made, believed or not."""
        return self._proxy.num_dials

    def service(self, handler_call_details: Any) -> Any:
        """Of any method."""
        self.calls.append(handler_call_details.method)
        if handler_call_details.method != FIND_LEADER:
            return None
        return grpc.unary_unary_rpc_method_handler(
            self._lead, response_serializer=scheduler_pb2.FindLeaderResponse.SerializeToString
        )

    async def _lead(self, request: bytes, context: Any) -> scheduler_pb2.FindLeaderResponse:
        return scheduler_pb2.FindLeaderResponse(is_leader=self._leads, scheduler_epoch=1 << 20)


def wrong_files(ours: Certificates, theirs: Certificates, role: Role) -> dict[str, tuple[Path, Path, Path]]:
    """Certificate and key of who wants to be taken for a `role`, by what is wrong, and the authority that they believe:
    ours."""
    cert, key, _ = theirs.files(role)
    return {
        "of another authority": (cert, key, ours.folder / "ca.crt"),
        "expired": ours.files(role, f"{role.value}-expired", days=1, ago=2),
        "not valid yet": ours.files(role, f"{role.value}-early", days=2, ago=AHEAD_DAYS),
    }


def wrong_identities(ours: Certificates, theirs: Certificates, role: Role) -> dict[str, Identity | None]:
    """As wrong_files, and of another role; None: it speaks plaintext."""
    other = Role.WORKER if role is not Role.WORKER else Role.FRONTEND
    wrong = {name: Identity(*files) for name, files in wrong_files(ours, theirs, role).items()}
    return {"plaintext": None, **wrong, "of another role": ours.identity(other)}


@asynccontextmanager
async def standing(identity: Identity | None, *, leads: bool = True) -> AsyncIterator[Impostor]:
    """One that shows this identity and asks nobody for theirs. leads: whether it says so."""
    front, behind = free_ports(2)
    proxy = Proxy(front, behind)
    impostor = Impostor(front, proxy, leads=leads)
    server = grpc.aio.server(handlers=[impostor])
    address = f"127.0.0.1:{behind}"
    if identity is None:
        server.add_insecure_port(address)
    else:
        pem = identity.pem()
        server.add_secure_port(address, grpc.ssl_server_credentials([(pem.key, pem.cert)]))
    await server.start()
    await proxy.start()
    try:
        yield impostor
    finally:
        await proxy.close()
        await server.stop(0)


@asynccontextmanager
async def standing_for(
    role: Role, ours: Certificates, theirs: Certificates
) -> AsyncIterator[dict[str, Impostor]]:
    """One of each kind, by what is wrong with it."""
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(standing(identity))
            for name, identity in wrong_identities(ours, theirs, role).items()
        }
