"""Puts the worker service together and runs it until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid

from signalbox.links import rpc
from signalbox.runtime.process import settle_memory
from signalbox.telemetry import spans
from signalbox.telemetry.metrics_server import MetricsServer
from signalbox.v1 import transfer_pb2_grpc, worker_pb2_grpc
from worker_svc.config import WorkerSettings
from worker_svc.core.batch import ModelRunner
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.guardian.step_mark import StepMark
from worker_svc.links.outputs import Outputs, WorkerServicer
from worker_svc.runner_factory import make_runner
from worker_svc.transfer.control.servicer import TransferServicer
from worker_svc.worker import Worker

logger = logging.getLogger(__name__)
STOP_STREAMS_S = 0.5


async def serve(
    settings: WorkerSettings, stop: asyncio.Event, instance: str | None = None, mark: StepMark | None = None
) -> None:
    """Runs until `stop` is set. Raises StartupError. instance: UUID of this process; None: a new one. mark: where its
    guardian finds which step it executes."""
    tracer = spans.start("worker", settings.worker_id)
    outputs = Outputs(instance or uuid.uuid4().hex, settings.outbound_log_bytes, settings.frontend_timeout_s)
    server = rpc.Server(["signalbox.v1.WorkerService", "signalbox.v1.TransferService"])
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(WorkerServicer(outputs), server.grpc)
    servicer = TransferServicer()
    transfer_pb2_grpc.add_TransferServiceServicer_to_server(servicer, server.grpc)
    metrics_server = MetricsServer()
    metrics_server.start(settings.metrics, settings.metrics_guard())
    # Not alive before the model is loaded: that is what startup probes wait for.
    port = await server.start(settings.listen, alive=False, health_address=settings.health)
    stopping = asyncio.create_task(stop.wait())
    try:
        loaded = await _load(settings, stopping)
        if loaded is None:
            return
        host = settings.listen.rpartition(":")[0]
        address = settings.advertise or f"{host}:{port}"
        worker = Worker(settings, *loaded, address, outputs, tracer, mark or StepMark(), servicer)
        metrics_server.show(worker.metrics)
        await worker.run(server, stopping)
        await server.stop(STOP_STREAMS_S if outputs.is_being_read else 0)
        await asyncio.to_thread(worker.close)
    finally:
        await server.stop(0)
        await metrics_server.stop()
        await asyncio.to_thread(tracer.stop)


async def _load(
    settings: WorkerSettings, stopping: asyncio.Task[bool]
) -> tuple[ModelRunner, Drafter | None] | None:
    """The model, ready to run; None when the worker is told to stop meanwhile. Raises StartupError."""
    started = time.monotonic()
    loading = asyncio.get_running_loop().run_in_executor(None, make_runner, settings)
    await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
    if stopping.done():
        return None
    runner, drafter = await loading
    logger.info(
        "model %s loaded in %.1f s: %d blocks of %d tokens, up to %d tokens per request",
        runner.info.model,
        time.monotonic() - started,
        runner.info.num_blocks,
        runner.info.block_size,
        runner.info.max_model_len,
    )
    settle_memory()
    return runner, drafter
