"""Calls that change something at a scheduler leave a line: who, what, from where, and how it ended."""

from __future__ import annotations

import logging
from typing import Any

import grpc
import pytest

from scheduler_svc.admin.audit import AdminAudit
from scheduler_svc.admin.servicer import AdminServicer
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.step_loop import StepLoop
from signalbox.links import rpc
from signalbox.v1 import admin_pb2, admin_pb2_grpc


async def test_changes_are_told_with_their_outcome_and_questions_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    core = Scheduler(SchedulerConfig(), epoch=1, now=0.0)
    server = rpc.Server(["signalbox.v1.AdminService"], [AdminAudit()])
    servicer = AdminServicer(StepLoop(core, lambda: 0.0, lambda when, action: None))
    admin_pb2_grpc.add_AdminServiceServicer_to_server(servicer, server.grpc)
    port = await server.start("127.0.0.1:0")
    async with rpc.channel(f"127.0.0.1:{port}") as channel:
        stub: Any = admin_pb2_grpc.AdminServiceStub(channel)
        await stub.GetStatus(admin_pb2.GetStatusRequest())
        await stub.ResetPrefixCache(admin_pb2.ResetPrefixCacheRequest())
        with pytest.raises(grpc.aio.AioRpcError) as unreadable:
            await channel.unary_unary("/signalbox.v1.AdminService/DrainWorker")(b"\xff\xff")
        assert unreadable.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await stub.DrainWorker(admin_pb2.DrainWorkerRequest(worker_id="nobody"))
    await server.stop(0)
    lines = [vars(record) for record in caplog.records if record.name == "scheduler_svc.admin.audit"]
    told = [(line["method"], line["outcome"]) for line in lines]
    assert not [record for record in caplog.records if record.exc_info], "what is no message left a stack"
    assert told == [("ResetPrefixCache", "ok"), ("DrainWorker", refusal.value.code().name)]
    assert '"nobody"' in lines[1]["request"]
    assert all(line["client"].startswith("ipv4:127.0.0.1:") and line["caller"] == "" for line in lines)
