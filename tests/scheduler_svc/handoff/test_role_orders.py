"""An operator says what a worker is there for, and is told what cannot be (PD1)."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from scheduler_svc.admin.servicer import AdminServicer
from scheduler_svc.step_loop import StepLoop
from signalbox.links import rpc
from signalbox.protocol.enums import WorkerRole
from signalbox.v1 import admin_pb2, admin_pb2_grpc
from tests.scheduler_svc.handoff.pair import A, B, Pair

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize(
    ("worker", "role", "field"),
    [
        (A, WorkerRole.DECODE, ""),
        (B, WorkerRole.BOTH, ""),
        (B, WorkerRole.PREFILL, "role"),
        (A, 9, "role"),
        (A, 0, "role"),
        ("nobody", WorkerRole.DECODE, "worker_id"),
    ],
)
async def test_a_role_is_set_or_refused(worker: str, role: int, field: str) -> None:
    """B was started without hand-offs: nothing that it computes could go elsewhere."""
    pair = Pair(attach=False)
    pair.attach(A)
    pair.attach(B, kv_layout="")
    server = rpc.Server(["signalbox.v1.AdminService"])
    servicer = AdminServicer(StepLoop(pair.core, lambda: 0.0, lambda when, action: None))
    admin_pb2_grpc.add_AdminServiceServicer_to_server(servicer, server.grpc)
    port = await server.start("127.0.0.1:0")
    try:
        async with rpc.channel(f"127.0.0.1:{port}") as channel:
            stub: Any = admin_pb2_grpc.AdminServiceStub(channel)
            request = admin_pb2.SetWorkerRoleRequest(worker_id=worker, role=int(role))  # type: ignore[arg-type]
            if not field:
                await stub.SetWorkerRole(request)
                assert pair.core.workers[worker].role == role
                return
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await stub.SetWorkerRole(request)
            assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert field in str(refusal.value.trailing_metadata())
            assert {each.role for each in pair.core.workers.values()} == {WorkerRole.BOTH}
    finally:
        await server.stop(0)
