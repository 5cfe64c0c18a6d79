"""The scheduler's services in a process that stands by until it leads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from scheduler_svc.admin.servicer import AdminServicer
from scheduler_svc.lease.alone import NoLease
from scheduler_svc.lease.lease import Lease
from scheduler_svc.servicer import SchedulerServicer
from signalbox.errors import UnavailableError
from signalbox.links.rpc import abort
from signalbox.links.tls.guard import names_of
from signalbox.links.tls.identity import ours
from signalbox.links.tls.roles import Role, roles_of
from signalbox.v1 import admin_pb2, admin_pb2_grpc, scheduler_pb2, scheduler_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]
SERVICE_METHODS = scheduler_pb2.DESCRIPTOR.services_by_name["SchedulerService"].methods_by_name
ADMIN_METHODS = admin_pb2.DESCRIPTOR.services_by_name["AdminService"].methods_by_name


class LeadershipServicer(scheduler_pb2_grpc.SchedulerServiceServicer, admin_pb2_grpc.AdminServiceServicer):
    """Says who leads, and refuses all other calls of both services with UNAVAILABLE until this process does (B1)."""

    def __init__(self) -> None:
        self._lease: Lease = NoLease()
        self._leading: SchedulerServicer | None = None
        self._admin: AdminServicer | None = None

    @property
    def leads(self) -> bool:
        """Whether this process leads."""
        return self._leading is not None

    def stand_by(self, lease: Lease) -> None:
        """Answers who holds `lease` from now on."""
        self._lease = lease

    def lead(self, servicer: SchedulerServicer, admin: AdminServicer) -> None:
        """Hands every call to these from now on."""
        self._leading, self._admin = servicer, admin

    async def FindLeader(  # noqa: N802
        self, request: scheduler_pb2.FindLeaderRequest, context: Context
    ) -> scheduler_pb2.FindLeaderResponse:
        """Answers who leads. A lease that may have run out while this process stood still is another's perhaps."""
        identity = ours()  # without certificates whoever gets here is believed
        if identity is None or Role.SCHEDULER in roles_of(names_of(context), identity.domain):
            self._lease.depose(request.lease_counter)
        if self._leading is None:
            return scheduler_pb2.FindLeaderResponse(leader_address=self._lease.holder_address)
        if not self._lease.is_held:
            return scheduler_pb2.FindLeaderResponse()
        return await self._leading.FindLeader(request, context)

    async def call(self, method: str, request: Any, context: Context) -> Any:
        """Has `method` answered by whoever leads."""
        if self._leading is None:
            leader = self._lease.holder_address
            who = f"{leader} leads" if leader else "no scheduler leads yet"
            await abort(context, UnavailableError(f"this scheduler stands by; {who}"))
        servicer = self._admin if method in ADMIN_METHODS else self._leading
        return await getattr(servicer, method)(request, context)


def _handler(method: str) -> Callable[[LeadershipServicer, Any, Context], Awaitable[Any]]:
    async def handle(self: LeadershipServicer, request: Any, context: Context) -> Any:
        return await self.call(method, request, context)

    return handle


for _method in (*SERVICE_METHODS, *ADMIN_METHODS):
    if _method != "FindLeader":
        setattr(LeadershipServicer, _method, _handler(_method))
