"""Wires the frontend together, and takes it down in order: NOT_SERVING, drain, cancel, stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from uuid import uuid4

from frontend_svc.access.gate import Gate
from frontend_svc.access.keys import watch_keys
from frontend_svc.api.grpc.auth import GrpcAuth
from frontend_svc.api.grpc.servicer import SERVICE, GenerationServicer
from frontend_svc.api.http.app import HttpApi
from frontend_svc.api.http.server import HttpServer
from frontend_svc.api.page.board_stream import BoardStream
from frontend_svc.api.page.page import WebPage
from frontend_svc.api.vllm import faces
from frontend_svc.clock import loop_time
from frontend_svc.config import FrontendSettings, is_loopback
from frontend_svc.links.operations import OperationQueue
from frontend_svc.links.orders import Orders
from frontend_svc.links.scheduler_link import SchedulerLink
from frontend_svc.links.worker_links import WorkerLinks
from frontend_svc.metrics import Metrics
from frontend_svc.models import ModelDirectory
from frontend_svc.requests.processor import RequestProcessor
from frontend_svc.requests.sessions import SessionTable
from frontend_svc.requests.structured_output import FormCheck
from frontend_svc.text.tokenizer import load_tokenizer
from frontend_svc.tracing import TracedSessions
from signalbox.errors import UnavailableError
from signalbox.links import rpc
from signalbox.links.heartbeat import HEARTBEAT_S
from signalbox.runtime.process import settle_memory
from signalbox.telemetry import spans
from signalbox.v1.frontend_pb2_grpc import add_GenerationServiceServicer_to_server

log = logging.getLogger(__name__)

POLL_S = 0.05
FAREWELL_S = 1.0
"""How long clients of cancelled requests have to read the terminal event."""


class Frontend:
    """One frontend process."""

    def __init__(self, settings: FrontendSettings) -> None:
        """Raises StartupError when the model directory or the key file cannot be read."""
        self._settings = settings
        key_file = None if settings.key_file is None else watch_keys(settings.key_file)
        self.gate = Gate(key_file, share_prefix_cache=settings.share_prefix_cache)
        instance = uuid4().hex
        tokenizer = None if settings.model is None else load_tokenizer(settings.model)
        silence_s = settings.scheduler_silence_ms / 1e3
        orders = Orders(loop_time, recent_s=2 * silence_s)
        queue = OperationQueue(orders)
        self._tracer = spans.start("frontend", settings.name or instance)
        self.metrics = Metrics(settings.name, instance, self._tracer.counts)
        self.directory = ModelDirectory(
            tokenizer_fingerprint=tokenizer.fingerprint if tokenizer else "",
            served_model_name=settings.served_model_name,
        )
        self.table = SessionTable(
            queue,
            TracedSessions(self.metrics) if self._tracer.is_on else self.metrics,
            replay_limit=settings.replay_limit,
            max_backlog_tokens=settings.max_backlog_tokens,
            max_open_requests=settings.max_open_requests,
            max_open_bytes=settings.max_open_bytes,
        )
        self.metrics.watch_open(lambda: len(self.table))
        self._form_check = None
        if settings.model is not None and tokenizer is not None:
            self._form_check = FormCheck(settings.model / "tokenizer.json", tokenizer.eos_token_id)
        self.processor = RequestProcessor(
            self.table,
            self.directory,
            tokenizer,
            settings.limits,
            self._tracer,
            self._form_check,
            self.gate,
        )
        self.workers = WorkerLinks(
            instance,
            self.table,
            orders,
            queue.say_reach,
            silence_s=settings.worker_silence_ms / 1e3,
            unreachable_s=settings.unreachable_s,
        )
        self.metrics.watch_reach(self.workers.reach)
        self.scheduler = SchedulerLink(
            settings.scheduler,
            instance,
            queue=queue,
            table=self.table,
            directory=self.directory,
            workers=self.workers,
            queue_s=settings.queue_s,
            lost_scheduler_s=settings.lost_scheduler_s,
            silence_s=silence_s,
        )
        self._board = BoardStream(lambda: self.scheduler.address)
        self.http_port = 0
        self.grpc_port = 0
        self._grpc = self._make_grpc(instance)
        self._http = self._make_http()
        self._tasks: list[asyncio.Task[None]] = []

    def _make_grpc(self, instance: str) -> rpc.Server:
        """Our own face over gRPC, and those for routers of other projects."""
        settings = self._settings
        server = rpc.Server(
            [SERVICE, *(faces.SERVICES if settings.vllm_faces else ())],
            [GrpcAuth(self.gate, self.metrics)] if self.gate.has_keys else [],
            reuse_port=settings.reuse_port,
            max_receive_bytes=settings.max_request_bytes,
        )
        servicer = GenerationServicer(self.processor, self.directory, self.metrics)
        add_GenerationServiceServicer_to_server(servicer, server.grpc)
        if settings.vllm_faces:
            faces.add_faces(
                server.grpc,
                self.processor,
                self.metrics,
                self.table,
                self.directory,
                instance=instance,
                model=settings.model,
                is_ready=lambda: self.is_ready,
            )
        return server

    def _make_http(self) -> HttpServer:
        """The faces over HTTP."""
        settings = self._settings
        api = HttpApi(
            self.processor,
            self.directory,
            self.metrics,
            max_request_bytes=settings.max_request_bytes,
            is_ready=lambda: self.is_ready,
            name=settings.name,
            page=WebPage(self._board) if settings.page else None,
            metrics_need_key=settings.metrics_need_key,
        )
        return HttpServer(api.app, reuse_port=settings.reuse_port)

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
        self.http_port = await self._http.start(self._settings.http)
        self.grpc_port = await self._grpc.start(self._settings.grpc)
        self._tasks = [
            asyncio.create_task(self.scheduler.run()),
            asyncio.create_task(self._keep_health()),
            asyncio.create_task(self._keep_cancelling_stalled()),
        ]
        if self.gate.has_keys:
            self._tasks.append(asyncio.create_task(self.gate.keep_current()))
        elif public := [at for at in (self._settings.http, self._settings.grpc) if not is_loopback(at)]:
            log.warning("without --key-file anybody who reaches %s may call", " or ".join(public))
        settle_memory()
        log.info("HTTP on port %d, gRPC on port %d", self.http_port, self.grpc_port)

    async def run(self, stop: asyncio.Event) -> None:
        """Returns when `stop` is set. Raises what ended a background task, which only a bug can."""
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([stopping, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        for task in self._tasks:
            if task.done():
                task.result()

    async def stop(self) -> None:
        """Refuses new requests, lets open ones end for `drain_s`, then ends them."""
        self.processor.stopping = True
        await asyncio.gather(self._http.leave(), self._grpc.set_serving(False))
        await self._wait_empty(self._settings.drain_s)
        for session in self.table:
            session.cancel(UnavailableError("the server is stopping"))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.scheduler.drained(), FAREWELL_S)
        self._board.close()
        await asyncio.gather(self._http.stop(), self._grpc.stop(FAREWELL_S))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.workers.close()
        if self._form_check is not None:
            self._form_check.close()
        await asyncio.to_thread(self._tracer.stop)

    async def _wait_empty(self, limit_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while len(self.table):
                    await asyncio.sleep(POLL_S)

    async def _keep_health(self) -> None:
        """gRPC health says what /ready says."""
        serving = False
        while True:
            if serving != self.is_ready:
                serving = self.is_ready
                await self._grpc.set_serving(serving)
            await asyncio.sleep(HEARTBEAT_S)  # what readiness hangs on changes no oftener

    async def _keep_cancelling_stalled(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._settings.stall_s / 2))
            self.table.cancel_stalled(self.table.clock(), self._settings.stall_s)


async def serve(settings: FrontendSettings, stop: asyncio.Event) -> None:
    """Runs a frontend until `stop` is set."""
    frontend = Frontend(settings)
    try:
        await frontend.start()
        await frontend.run(stop)
        log.info("draining %d requests", len(frontend.table))
    finally:
        await frontend.stop()
