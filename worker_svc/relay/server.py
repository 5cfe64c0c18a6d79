"""Puts the relay service together and runs it until it is told to stop."""

from __future__ import annotations

import asyncio
import logging

from signalbox.links import rpc
from signalbox.runtime.process import settle_memory
from signalbox.telemetry.metrics_server import MetricsServer
from worker_svc.relay import metrics
from worker_svc.relay.config import RelaySettings
from worker_svc.relay.scheduler_link import SharedSchedulerLink
from worker_svc.relay.servicer import SERVICE, RelayServicer

logger = logging.getLogger(__name__)


async def serve(settings: RelaySettings, stop: asyncio.Event) -> None:
    """Runs until `stop` is set. Raises StartupError. Health says whether there is a link to the scheduler."""
    server = rpc.Server([SERVICE])
    link = SharedSchedulerLink(
        settings.scheduler,
        settings.relay_id,
        settings.window_ms / 1e3,
        settings.scheduler_silence_ms / 1e3,
        on_attached=server.set_serving,
    )
    server.grpc.add_generic_rpc_handlers((RelayServicer(link).handler(),))
    metrics_server = MetricsServer()
    metrics_server.start(settings.metrics, settings.metrics_guard())
    metrics_server.show(lambda: metrics.read(link))
    port = await server.start(settings.listen, health_address=settings.health)
    settle_memory()
    logger.info("listening on port %d", port)
    running = asyncio.create_task(link.run())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await server.stop(0)
    await metrics_server.stop()
