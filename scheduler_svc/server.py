"""Puts the scheduler service together and runs it until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import time

from scheduler_svc import metrics
from scheduler_svc.config import SchedulerSettings
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.servicer import SchedulerServicer
from scheduler_svc.step_loop import StepLoop
from signalbox import rpc, telemetry
from signalbox.metrics_server import MetricsServer
from signalbox.v1 import scheduler_pb2_grpc

logger = logging.getLogger(__name__)
TICK_S = 0.5


async def serve(settings: SchedulerSettings, stop: asyncio.Event) -> None:
    """Runs until `stop` is set. Raises StartupError."""
    # Later processes have a higher epoch, without anything to keep on a disk.
    epoch = time.time_ns() // 1_000_000
    clock = asyncio.get_running_loop()
    core = Scheduler(settings.core(), epoch, clock.time())
    tracer = telemetry.start("scheduler", str(epoch))
    loop = StepLoop(core, clock.time, clock.call_at, tracer)
    metrics_server = MetricsServer()
    metrics_server.show(lambda: metrics.read(loop, tracer.counts))
    server = rpc.Server(["signalbox.v1.SchedulerService"])
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(SchedulerServicer(loop), server.grpc)
    metrics_server.start(settings.metrics)
    port = await server.start(settings.listen)
    await server.set_serving(True)
    logger.info("listening on port %d, epoch %d", port, epoch)
    ticker = asyncio.create_task(_tick(loop))
    await stop.wait()
    ticker.cancel()
    await server.stop(settings.drain_s)
    await metrics_server.stop()
    await asyncio.to_thread(tracer.stop)


async def _tick(loop: StepLoop) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        loop.tick()
