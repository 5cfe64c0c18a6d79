"""Puts the scheduler service together and runs it until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import uuid
from pathlib import Path
from typing import NoReturn

from scheduler_svc import metrics
from scheduler_svc.admin.audit import AdminAudit
from scheduler_svc.admin.servicer import AdminServicer
from scheduler_svc.admin.tenant_file import Limits, watch_tenants
from scheduler_svc.config import SchedulerSettings
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.lease.alone import NoLease
from scheduler_svc.lease.leadership_servicer import LeadershipServicer
from scheduler_svc.lease.lease import Holder, Lease
from scheduler_svc.lease.predecessor_link import tell_predecessor
from scheduler_svc.lease.spec import open_lease, parse_lease
from scheduler_svc.servicer import SchedulerServicer
from scheduler_svc.step_loop import StepLoop
from signalbox.links import rpc
from signalbox.links.heartbeat import HEARTBEAT_S
from signalbox.runtime.parts import FAILURES
from signalbox.runtime.process import settle_memory
from signalbox.runtime.watched_file import WatchedFile
from signalbox.telemetry import spans
from signalbox.telemetry.metrics_server import MetricsServer
from signalbox.telemetry.spans import Tracer
from signalbox.v1 import admin_pb2_grpc, scheduler_pb2_grpc

logger = logging.getLogger(__name__)
TICK_S = HEARTBEAT_S
TICKER = "ticker"


async def serve(settings: SchedulerSettings, stop: asyncio.Event) -> None:
    """Runs until `stop` is set. Raises StartupError, and LeaseLostError when another scheduler leads."""
    process = SchedulerProcess(settings)
    services = ["signalbox.v1.SchedulerService", "signalbox.v1.AdminService"]
    server = rpc.Server(services, [AdminAudit()])
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(process.servicer, server.grpc)
    admin_pb2_grpc.add_AdminServiceServicer_to_server(process.servicer, server.grpc)
    process.metrics.start(settings.metrics, settings.metrics_guard())
    try:
        port = await server.start(settings.listen, health_address=settings.health)
        lease: Lease = NoLease()
        try:
            lease = process.open_lease(port)
            settle_memory()
            await server.set_serving(True)
            logger.info("listening on port %d", port)
            await rpc.run_until_first_ends(_until(stop), process.lead(lease))
        finally:
            # Whoever stands by can go on at once, so nothing is gained by letting the links end slowly.
            await server.stop(0 if settings.contended_lease else settings.drain_s)
            await lease.release()
    finally:
        await process.metrics.stop()
        await asyncio.to_thread(process.tracer.stop)


class SchedulerProcess:
    """This process: what it has before it leads, so that it can at once."""

    def __init__(self, settings: SchedulerSettings) -> None:
        """Reads what the settings name. Raises StartupError."""
        self._settings = settings
        self._tenants = watch_tenants(Path(settings.tenants)) if settings.tenants else None
        self.instance = str(uuid.uuid4())
        self.servicer = LeadershipServicer()
        self.tracer: Tracer = spans.start("scheduler", self.instance)
        self.metrics = MetricsServer()
        self.metrics.show(lambda: metrics.read_leads(self.servicer.leads))

    def open_lease(self, port: int) -> Lease:
        """What makes it the leader; it listens on `port`. Raises StartupError."""
        settings = self._settings
        holder = Holder(self.instance, settings.address(port))
        lease = open_lease(parse_lease(settings.contended_lease), holder, settings.lease_duration_s)
        self.servicer.stand_by(lease)
        return lease

    async def lead(self, lease: Lease) -> None:
        """Stands by until the lease is ours, then schedules. Raises LeaseLostError."""
        if self._settings.contended_lease:
            logger.info("standing by for the lease %s", self._settings.contended_lease)
        counter = await lease.acquire()
        clock = asyncio.get_running_loop()
        core = Scheduler(self._settings, counter + 1, clock.time(), instance=self.instance)
        loop = StepLoop(core, clock.time, clock.call_at, self.tracer)
        if self._tenants is not None:
            core.queues.set_limits(*self._tenants.content)
        self.metrics.show(lambda: metrics.read(loop, self.tracer.counts))
        self.servicer.lead(SchedulerServicer(loop), AdminServicer(loop, self._tenants))
        logger.info("leading with term %d, instance %s", core.epoch, self.instance)
        # Without its ticker the service would look alive, and no grace time would run out.
        await rpc.run_until_first_ends(
            lease.keep(),
            tick_for_ever(loop, TICK_S, self._tenants),
            _tell_predecessor(lease.predecessor_address, counter),
        )


async def tick_for_ever(loop: StepLoop, every_s: float, tenants: WatchedFile[Limits] | None = None) -> None:
    """Lets grace times run out. An error in one tick is logged, counted, and ends nothing."""
    FAILURES.begin(TICKER)
    while True:
        await asyncio.sleep(every_s)
        try:
            if tenants is not None and tenants.reload():
                loop.core.queues.set_limits(*tenants.content)
            loop.tick()
        except Exception as error:
            FAILURES.add(TICKER, error)


async def _tell_predecessor(address: str, counter: int) -> NoReturn:
    """Tells the predecessor that the lease is ours, until cancelled: it ends nothing when it is done."""
    if address:
        await tell_predecessor(address, counter)
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()
