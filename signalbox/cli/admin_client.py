"""Questions and orders to a scheduler, for the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from signalbox.board.link import read_safe_mode
from signalbox.cli.safe_mode import SafeMode
from signalbox.errors import UnavailableError
from signalbox.links.leader import Leader, LeaderSearch, leader_search
from signalbox.links.rpc_errors import error_of
from signalbox.protocol.enums import WorkerRole
from signalbox.v1 import admin_pb2, admin_pb2_grpc

TIMEOUT_S = 10
FIRST_LOOK_S = 0.6
"""Seconds for anybody at all to answer; if nobody has by then, nobody is waited for."""
TAKEOVER_S = 5.0
"""How long a standby is waited for that may be about to lead."""


class AdminClient:
    """Asks the scheduler that leads at the moment. What goes wrong is raised as one of signalbox/errors.py."""

    def __init__(self, search: LeaderSearch) -> None:
        self._search = search

    async def status(self) -> admin_pb2.GetStatusResponse:
        """Queue, workers and cache as they are now."""
        answer = await self._call("GetStatus", admin_pb2.GetStatusRequest())
        assert isinstance(answer, admin_pb2.GetStatusResponse)
        return answer

    async def explain(self, request_id: str) -> admin_pb2.ExplainRequestResponse:
        """Where a request is, and why it does not run; all requests of that id."""
        request = admin_pb2.ExplainRequestRequest(request_id=request_id)
        answer = await self._call("ExplainRequest", request)
        assert isinstance(answer, admin_pb2.ExplainRequestResponse)
        return answer

    async def drain(self, worker_id: str, *, resume: bool = False) -> int:
        """Places nothing more on a worker (or again); returns how many requests it still holds."""
        request = admin_pb2.DrainWorkerRequest(worker_id=worker_id, resume=resume)
        answer = await self._call("DrainWorker", request)
        return int(answer.num_requests)

    async def set_role(self, worker_id: str, role: WorkerRole) -> None:
        """Says what a worker is there for."""
        number = role.value
        request = admin_pb2.SetWorkerRoleRequest(worker_id=worker_id, role=number)  # type: ignore[arg-type]
        await self._call("SetWorkerRole", request)

    async def move(self, request_id: str, worker_id: str) -> str:
        """Begins to hand a request over to a worker; returns the one that has it."""
        request = admin_pb2.MoveRequestRequest(request_id=request_id, worker_id=worker_id)
        answer = await self._call("MoveRequest", request)
        return str(answer.source_worker_id)

    async def set_safe_mode(self, level: int) -> SafeMode:
        """Suspends the classes below `level`."""
        answer = await self._call("SetSafeMode", admin_pb2.SetSafeModeRequest(level=level))
        return read_safe_mode(answer.safe_mode)

    async def lift_safe_mode(self) -> SafeMode:
        """Lets all classes go on."""
        answer = await self._call("LiftSafeMode", admin_pb2.LiftSafeModeRequest())
        return read_safe_mode(answer.safe_mode)

    async def reload_tenants(self) -> int:
        """Has the file of tenants read again; returns how many tenants it names."""
        answer = await self._call("ReloadTenants", admin_pb2.ReloadTenantsRequest())
        return int(answer.num_tenants)

    async def _call(self, method: str, request: object) -> Any:
        leader = await self._find()
        stub = admin_pb2_grpc.AdminServiceStub(leader.channel)
        try:
            return await getattr(stub, method)(request, timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise error_of(error, leader.address) from None

    async def _find(self) -> Leader:
        try:
            return await self._search.find(FIRST_LOOK_S)
        except UnavailableError as error:
            if self._search.is_nobody_there:
                raise UnavailableError(f"{error.message}; start it with `signalbox up`") from None
        return await self._search.find(TAKEOVER_S)


@asynccontextmanager
async def admin_client(addresses: str) -> AsyncIterator[AdminClient]:
    """A link to the leader of `host:port,host:port`, for the time of the block."""
    async with leader_search(addresses) as search:
        yield AdminClient(search)


def is_drained(worker: admin_pb2.WorkerStatus) -> bool:
    """Whether the worker takes nothing new and nothing is left on it."""
    has_any = worker.num_requests or worker.num_running or worker.num_preempted
    return worker.draining and not has_any
