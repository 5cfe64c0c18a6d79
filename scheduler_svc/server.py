"""Puts the scheduler service together and runs it until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import uuid

from scheduler_svc import metrics
from scheduler_svc.config import SchedulerSettings
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.servicer import SchedulerServicer
from scheduler_svc.step_loop import StepLoop
from scheduler_svc.tenant_file import TenantFile
from signalbox import rpc, telemetry
from signalbox.errors import StartupError
from signalbox.metrics_server import MetricsServer
from signalbox.process import settle_memory
from signalbox.v1 import scheduler_pb2_grpc

logger = logging.getLogger(__name__)
TICK_S = 0.5


async def serve(settings: SchedulerSettings, stop: asyncio.Event, first_term: int = 1) -> None:
    """Runs until `stop` is set. `first_term` rises with what is heard of others (docs/liveness.md, T1). Raises
    StartupError."""
    instance = str(uuid.uuid4())
    clock = asyncio.get_running_loop()
    core = Scheduler(settings.core(), first_term, clock.time(), instance=instance)
    tenants = read_tenants(settings.tenants, core)
    tracer = telemetry.start("scheduler", instance)
    loop = StepLoop(core, clock.time, clock.call_at, tracer)
    metrics_server = MetricsServer()
    metrics_server.show(lambda: metrics.read(loop, tracer.counts))
    server = rpc.Server(["signalbox.v1.SchedulerService"])
    servicer = SchedulerServicer(loop, tenants, instance)
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(servicer, server.grpc)
    metrics_server.start(settings.metrics)
    port = await server.start(settings.listen)
    settle_memory()
    await server.set_serving(True)
    logger.info("listening on port %d, term %d, instance %s", port, core.epoch, instance)
    ticker = asyncio.create_task(tick_for_ever(loop, TICK_S, tenants))
    stopped = asyncio.create_task(stop.wait())
    # Without its ticker the service would look alive, and no grace time would run out.
    await asyncio.wait((ticker, stopped), return_when=asyncio.FIRST_COMPLETED)
    ticker.cancel()
    await server.stop(settings.drain_s)
    await metrics_server.stop()
    await asyncio.to_thread(tracer.stop)


def read_tenants(path: str, core: Scheduler) -> TenantFile | None:
    """Puts the limits of the file at `path` in force, if there is one. Raises StartupError."""
    if not path:
        return None
    tenants = TenantFile(path, core.queues.set_limits)
    try:
        core.queues.set_limits(*tenants.read())
    except (OSError, ValueError) as error:
        raise StartupError(f"tenants: {path}: {error}") from None
    return tenants


async def tick_for_ever(loop: StepLoop, every_s: float, tenants: TenantFile | None = None) -> None:
    """Lets grace times run out. An error in one tick is logged and ends nothing."""
    while True:
        await asyncio.sleep(every_s)
        try:
            if tenants is not None:
                tenants.reload()
            loop.tick()
        except Exception:
            logger.exception("a tick failed")
