"""Wires the frontend together, and takes it down in order: NOT_SERVING, drain, cancel, stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable

from frontend_svc.api.batches.endpoints import BatchesApi
from frontend_svc.api.grpc.auth import GrpcAuth
from frontend_svc.api.grpc.bounds import MAX_STREAMS, SPARE_STREAMS, GrpcBounds
from frontend_svc.api.grpc.servicer import SERVICE, GenerationServicer
from frontend_svc.api.http.app import HttpApi
from frontend_svc.api.http.bounds import GRPC_SHARE, HttpBounds, connections_for
from frontend_svc.api.http.server import HttpServer
from frontend_svc.api.page.board_stream import BoardStream
from frontend_svc.api.page.page import WebPage
from frontend_svc.api.vllm import faces
from frontend_svc.config import FrontendSettings
from frontend_svc.guard.ban_file import BanFile
from frontend_svc.guard.guard import Guard
from frontend_svc.guard.memory import Memory, find_memory
from frontend_svc.guard.port import Port
from frontend_svc.guard.probes import Probes
from frontend_svc.guard.shedding import Shedding
from frontend_svc.guard.sockets import PortSockets
from frontend_svc.links.ring_gauges import RingGauges
from frontend_svc.links.scheduler_link import SchedulerLink
from frontend_svc.links.worker_links import WorkerLinks
from frontend_svc.services import make_services
from signalbox.errors import StartupError, UnavailableError
from signalbox.links import rpc
from signalbox.links.addresses import is_loopback
from signalbox.links.heartbeat import HEARTBEAT_S
from signalbox.links.tls.identity import Identity
from signalbox.runtime.collector import Collector
from signalbox.runtime.process import SHORT_OF_MEMORY_STATUS, settle_memory
from signalbox.telemetry.metrics_server import MetricsServer
from signalbox.v1.frontend_pb2_grpc import add_GenerationServiceServicer_to_server

log = logging.getLogger(__name__)

POLL_S = 0.05
RETRY_S = 1.0
"""When whoever was ended for memory may try again."""
LAST_WORDS_S = 0.15
"""Twice so long: until the scheduler has heard of what ends for memory, and until clients have been written to."""
FAREWELL_S = 1.0
"""How long clients of cancelled requests have to read the terminal event."""


class Frontend:
    """One frontend process: its servers, its links, and how they start and stop."""

    def __init__(self, settings: FrontendSettings) -> None:
        """Raises StartupError when the model directory or the key file cannot be read."""
        self._settings = settings
        services = self._services = make_services(settings)
        self.access, self.metrics, self.directory = services.access, services.metrics, services.directory
        self.table, self.processor = services.table, services.processor
        self.prompts = services.prompts
        self.workers = WorkerLinks(services)
        self.metrics.watch_reach(self.workers.reach)
        self.scheduler = SchedulerLink(services, self.workers)
        self._board = BoardStream(lambda: self.scheduler.address)
        self._ring_gauges = RingGauges(lambda: self.scheduler.address)
        self.http_port = 0
        self.grpc_port = 0
        self.health_port = 0
        self._identity = _public_identity(settings)
        self._grpc = self._make_grpc() if settings.grpc else None
        self._api = self._make_api() if settings.http else None
        self._http = self._make_http(self._api) if self._api is not None else None
        self._probes = Probes(lambda: self.is_ready)
        self._metrics_server = MetricsServer()
        self._collector = Collector()
        self._guard: Guard | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def _make_grpc(self) -> rpc.Server:
        """Our own face over gRPC, and those for routers of other projects."""
        settings = self._settings
        server = rpc.Server(
            [SERVICE, *(faces.SERVICES if settings.vllm_faces else ())],
            [GrpcAuth(self.access, self.metrics)] if self.access.has_keys else [],
            reuse_port=settings.reuse_port,
            max_receive_bytes=settings.max_request_bytes,
            identity=self._identity,
            is_link=False,
            options=GrpcBounds(
                connections_for(settings.max_grpc_connections, GRPC_SHARE),
                # A router has one connection for all of its clients.
                settings.limits.max_open_requests + SPARE_STREAMS if settings.vllm_faces else MAX_STREAMS,
            ).options,
        )
        add_GenerationServiceServicer_to_server(GenerationServicer(self._services), server.grpc)
        if settings.vllm_faces:
            faces.add_faces(server.grpc, self._services, is_ready=lambda: self.is_ready)
        return server

    def _make_api(self) -> HttpApi:
        """The faces over HTTP."""
        page = WebPage(self._board) if self._settings.page else None
        return HttpApi(self._services, is_ready=lambda: self.is_ready, page=page)

    def _make_http(self, api: HttpApi) -> HttpServer:
        """The server of these faces."""
        return HttpServer(
            api.app,
            reuse_port=self._settings.reuse_port,
            bounds=HttpBounds(
                connections_for(self._settings.max_connections), stall_s=self._settings.stall_s
            ),
            on_refused=self.metrics.on_connection_refused,
            identity=self._identity,
            proxies=self._settings.proxies,
            is_shut=lambda: self._guard is not None and self._guard.is_shut,
        )

    @property
    def is_ready(self) -> bool:
        """A request would be served."""
        return (
            not self.processor.stopping
            and self.scheduler.connected
            and any(self.workers.is_open(worker) for worker in self.directory.workers)
        )

    async def start(self) -> None:
        """Listens and dials. Raises StartupError when a port cannot be had."""
        self._metrics_server.show(self.metrics.collect)
        self._metrics_server.start(self._settings.metrics, self._settings.metrics_guard())
        if self._http is not None:
            self.http_port = await self._http.start(self._settings.http)
        if self._grpc is not None:
            self.grpc_port = await self._grpc.start(self._settings.grpc)
        self._tasks = [
            asyncio.create_task(self.scheduler.run()),
            asyncio.create_task(self._keep_cancelling_stalled()),
        ]
        if self._grpc is not None:
            self._tasks.append(asyncio.create_task(self._keep_health(self._grpc)))
        if self._settings.ring_metrics:
            self.metrics.watch_ring(self._ring_gauges)
            self._tasks.append(asyncio.create_task(self._ring_gauges.keep_watching()))
        if self.access.has_keys:
            self._tasks.append(asyncio.create_task(self.access.keep_current()))
        elif public := [at for at in self._settings.faces if not is_loopback(at)]:
            log.warning("without --key-file anybody who reaches %s may call", " or ".join(public))
        if self._batches is not None:
            self._batches.runner.start()
        settle_memory()
        self._collector.start()
        if self._settings.health:
            self.health_port = await self._probes.start(self._settings.health)
        ports = (("HTTP", self.http_port), ("gRPC", self.grpc_port), ("probes", self.health_port))
        log.info("%s", ", ".join(f"{name} on port {port}" for name, port in ports if port))

    def watch(self, memory: Memory | None, leave: Callable[[int], None] = os._exit) -> None:
        """Has a thread watch memory and connections until the frontend, which has started, stops. memory: None: it is
        not watched. leave: ends the process. Raises StartupError when there is too little memory to begin with."""
        loop = asyncio.get_running_loop()

        def begin_last() -> None:
            loop.call_soon_threadsafe(
                lambda: self._tasks.append(loop.create_task(self._end_for_memory(leave)))
            )

        self._guard = Guard(memory, begin_last, leave)
        self.metrics.watch_memory(lambda: self._guard.share if self._guard is not None else 0.0)
        self._guard.start(self._watched_port())

    def _watched_port(self) -> Port | None:
        """The port of gRPC, whose core counts nobody's connections; None: it is not served, or this is not Linux."""
        if self._grpc is None or sys.platform != "linux":
            return None
        shedding = Shedding(GrpcBounds.max_per_address, self._settings.proxies)
        file = self._settings.bans_file
        bans = BanFile(file) if file is not None else None
        return Port(PortSockets(self.grpc_port), shedding, self.metrics.on_connection_refused, bans)

    async def _end_for_memory(self, leave: Callable[[int], None]) -> None:
        """Ends each call with its terminal event, has the scheduler free what it holds, and leaves (Z5)."""
        log.error("short of memory: %d requests end, and then this process", len(self.table))
        self.processor.make_refusal = _short_of_memory
        self.processor.stopping = True
        for session in self.table:
            session.cancel(_short_of_memory())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.scheduler.drained(), LAST_WORDS_S)
        await asyncio.sleep(LAST_WORDS_S)
        leave(SHORT_OF_MEMORY_STATUS)

    async def run(self, stop: asyncio.Event) -> None:
        """Returns when `stop` is set. Raises what ended a background task, which only a bug can."""
        stopping = asyncio.create_task(stop.wait())
        serving = self._http.task if self._http is not None else None
        tasks = [*self._tasks, *([serving] if serving is not None else [])]
        await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        for task in tasks:
            if task.done():
                task.result()

    async def stop(self) -> None:
        """Refuses new requests, lets open ones end for `drain_s`, then ends them."""
        self.processor.stopping = True
        if self._batches is not None:
            await self._batches.runner.stop()
        if self._http is not None:
            await self._http.leave()
        if self._grpc is not None:
            await self._grpc.set_serving(False)
        await self._wait_empty(self._settings.drain_s)
        for session in self.table:
            session.cancel(UnavailableError("the server is stopping"))
        if self._guard is not None:
            await asyncio.to_thread(self._guard.stop)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.scheduler.drained(), FAREWELL_S)
        self._board.close()
        self._collector.stop()
        await self._stop_servers()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.workers.close()
        await self._metrics_server.stop()
        await asyncio.to_thread(self._services.stop)

    async def _stop_servers(self) -> None:
        ends: list[Awaitable[None]] = [self._probes.stop()]
        if self._http is not None:
            ends.append(self._http.stop())
        if self._grpc is not None:
            ends.append(self._grpc.stop(FAREWELL_S))
        await asyncio.gather(*ends)

    @property
    def _batches(self) -> BatchesApi | None:
        """Files and batches; None: there are none here."""
        return None if self._api is None else self._api.batches

    async def _wait_empty(self, limit_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while len(self.table):
                    await asyncio.sleep(POLL_S)

    async def _keep_health(self, server: rpc.Server) -> None:
        """gRPC health says what /ready says."""
        serving = False
        while True:
            if serving != self.is_ready:
                serving = self.is_ready
                await server.set_serving(serving)
            await asyncio.sleep(HEARTBEAT_S)  # what readiness hangs on changes no oftener

    async def _keep_cancelling_stalled(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._settings.stall_s / 2))
            self.table.cancel_stalled(self.table.clock(), self._settings.stall_s)
            if not len(self.table):
                asyncio.get_running_loop().call_soon(self._collector.sweep, self.table.clock())


def _short_of_memory() -> UnavailableError:
    message = f"this frontend is short of memory and starts again; try again in {RETRY_S:g} s"
    return UnavailableError(message, retry_after_s=RETRY_S)


def _public_identity(settings: FrontendSettings) -> Identity | None:
    """What clients are shown; None: plaintext. Raises StartupError."""
    cert, key = settings.public_tls_cert, settings.public_tls_key
    if cert is None and key is None and settings.public_tls_ca is None:
        return None
    if cert is None or key is None:
        raise StartupError("--public-tls-cert and --public-tls-key must be given together")
    return Identity(cert, key, settings.public_tls_ca, "--public-tls")


async def serve(settings: FrontendSettings, stop: asyncio.Event) -> None:
    """Runs a frontend until `stop` is set."""
    frontend = Frontend(settings)
    try:
        await frontend.start()
        frontend.watch(find_memory(settings.memory_limit_bytes))
        await frontend.run(stop)
        log.info("draining %d requests", len(frontend.table))
    finally:
        await frontend.stop()
