"""Questions and orders to a scheduler, for the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from signalbox import rpc
from signalbox.board_link import read_safe_mode
from signalbox.rpc_errors import error_of
from signalbox.safe_mode import SafeMode
from signalbox.v1 import scheduler_pb2, scheduler_pb2_grpc

TIMEOUT_S = 10


class SchedulerLink:
    """A connection to the scheduler at `host:port`. What goes wrong is raised as one of signalbox/errors.py."""

    def __init__(self, address: str, channel: grpc.aio.Channel) -> None:
        self._address = address
        self._stub: Any = scheduler_pb2_grpc.SchedulerServiceStub(channel)

    async def status(self) -> scheduler_pb2.GetStatusResponse:
        """Queue, workers and cache as they are now."""
        answer = await self._call(self._stub.GetStatus, scheduler_pb2.GetStatusRequest())
        assert isinstance(answer, scheduler_pb2.GetStatusResponse)
        return answer

    async def explain(self, request_id: str) -> scheduler_pb2.ExplainRequestResponse:
        """Where a request is, and why it does not run; all requests of that id."""
        request = scheduler_pb2.ExplainRequestRequest(request_id=request_id)
        answer = await self._call(self._stub.ExplainRequest, request)
        assert isinstance(answer, scheduler_pb2.ExplainRequestResponse)
        return answer

    async def drain(self, worker_id: str, *, resume: bool = False) -> int:
        """Places nothing more on a worker (or again); returns how many requests it still holds."""
        request = scheduler_pb2.DrainWorkerRequest(worker_id=worker_id, resume=resume)
        answer = await self._call(self._stub.DrainWorker, request)
        return int(answer.num_requests)

    async def set_safe_mode(self, level: int) -> SafeMode:
        """Suspends the classes below `level`."""
        answer = await self._call(self._stub.SetSafeMode, scheduler_pb2.SetSafeModeRequest(level=level))
        return read_safe_mode(answer.safe_mode)

    async def lift_safe_mode(self) -> SafeMode:
        """Lets all classes go on."""
        answer = await self._call(self._stub.LiftSafeMode, scheduler_pb2.LiftSafeModeRequest())
        return read_safe_mode(answer.safe_mode)

    async def reload_tenants(self) -> int:
        """Has the file of tenants read again; returns how many tenants it names."""
        answer = await self._call(self._stub.ReloadTenants, scheduler_pb2.ReloadTenantsRequest())
        return int(answer.num_tenants)

    async def _call(self, method: Any, request: object) -> Any:
        try:
            return await method(request, timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise error_of(error, self._address) from None


@asynccontextmanager
async def scheduler_link(address: str) -> AsyncIterator[SchedulerLink]:
    """A connection for the time of the block."""
    async with rpc.channel(address) as channel:
        yield SchedulerLink(address, channel)


def is_drained(worker: scheduler_pb2.WorkerStatus) -> bool:
    """It takes nothing new and nothing is left on it."""
    return worker.draining and not worker.num_running and not worker.num_preempted
