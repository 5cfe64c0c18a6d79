"""Puts the worker service together and runs it until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from signalbox import rpc, telemetry
from signalbox.metrics_server import MetricsServer
from signalbox.process import settle_memory
from signalbox.telemetry import Tracer
from signalbox.v1 import scheduler_pb2, worker_pb2_grpc
from worker_svc import metrics
from worker_svc.config import WorkerSettings
from worker_svc.core.batch import ModelRunner, RunnerInfo
from worker_svc.core.drafter import Drafter
from worker_svc.core.step import Failure
from worker_svc.core.worker_core import WorkerCore
from worker_svc.grammar.desk import Verdict
from worker_svc.grammar.preparation import make_preparation
from worker_svc.outputs import Outputs, WorkerServicer
from worker_svc.runner.threaded_runner import ThreadedRunner
from worker_svc.runner_factory import make_runner
from worker_svc.scheduler_link import SchedulerLink
from worker_svc.step_loop import StepLoop, StepResult
from worker_svc.tracing import RunSpans

logger = logging.getLogger(__name__)
CHECK_S = 0.25
STOP_S = 5.0
STOP_STREAMS_S = 0.5


async def serve(settings: WorkerSettings, stop: asyncio.Event, instance: str | None = None) -> None:
    """Runs until `stop` is set. Raises StartupError. instance: UUID of this process; None: a new one."""
    tracer = telemetry.start("worker", settings.worker_id)
    outputs = Outputs(instance or uuid.uuid4().hex, settings.outbound_log_bytes, settings.frontend_timeout_s)
    server = rpc.Server(["signalbox.v1.WorkerService"])
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(WorkerServicer(outputs), server.grpc)
    metrics_server = MetricsServer()
    metrics_server.start(settings.metrics)
    # Not alive before the model is loaded: that is what startup probes wait for.
    port = await server.start(settings.listen, alive=False)
    stopping = asyncio.create_task(stop.wait())
    try:
        loaded = await _load(settings, stopping)
        if loaded is None:
            return
        host = settings.listen.rpartition(":")[0]
        worker = _Worker(settings, *loaded, settings.advertise or f"{host}:{port}", outputs, tracer)
        metrics_server.show(worker.metrics)
        await worker.run(server, stopping)
        await server.stop(STOP_STREAMS_S)
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


class _Worker:
    """What stands around a loaded model: the core and its step loop, and the link to the scheduler."""

    def __init__(
        self,
        settings: WorkerSettings,
        runner: ModelRunner,
        drafter: Drafter | None,
        address: str,
        outputs: Outputs,
        tracer: Tracer,
    ) -> None:
        """address: where frontends find us."""
        self._settings, self._outputs, self._tracer = settings, outputs, tracer
        self._runner = runner
        self._loop = asyncio.get_running_loop()
        self._core = WorkerCore(runner.info, settings.num_slots, drafter, settings.bad_row_limit)
        # Tokens of the sim runner are hashes: no grammar is about them.
        self._preparation = (
            make_preparation(settings.model, runner.info) if settings.runner != "sim" else None
        )
        self._steps = StepLoop(
            self._core,
            runner,
            on_result=self._in_loop(self._deliver),
            on_refused=self._in_loop(self._leave),
            spans=RunSpans(tracer, settings.worker_id, self._core.table) if tracer.is_on else None,
            preparation=self._preparation,
            on_verdict=self._in_loop(self._deliver_verdict),
            on_fence_ended=self._in_loop(self._tell_fence),
            on_refusal=self._in_loop(outputs.append),
        )
        self._link = SchedulerLink(
            settings.scheduler,
            self._steps,
            lambda: _hello(settings, runner.info, outputs.worker_instance, address),
            outputs.is_open,
        )

    async def run(self, server: rpc.Server, stopping: asyncio.Task[bool]) -> None:
        """Until it is told to stop, and has drained. Raises what the step loop or the link failed with."""
        self._steps.start()
        watch = _watch(self._settings, server, self._link, self._steps, self._outputs)
        tasks = [asyncio.create_task(self._link.run()), asyncio.create_task(watch)]
        await asyncio.wait((*tasks, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stopping.done() and self._settings.drain_s:
            tasks.append(asyncio.create_task(self._drain()))
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()

    async def _drain(self) -> None:
        """Lets the requests that are here go on to their end for `drain_s`."""
        self._link.tell_draining()
        end = time.monotonic() + self._settings.drain_s
        while time.monotonic() < end:
            await asyncio.sleep(CHECK_S)  # what was placed before the scheduler knew may be on its way
            _, num_unread, _ = self._outputs.unread()
            if not self._core.held_slots() and not num_unread:
                return

    def close(self) -> None:
        """Lets the steps that have arrived run."""
        self._steps.stop(STOP_S)
        if isinstance(self._runner, ThreadedRunner):
            self._runner.close(STOP_S)
        if self._preparation is not None:
            self._preparation.close()

    def metrics(self) -> Iterator[Metric]:
        """The state, as somebody scrapes it."""
        core, link = self._core, self._link
        return metrics.read(
            self._steps, core.table, core.draft_totals, self._outputs, link.is_attached, self._tracer.counts
        )

    # -- what the step thread has to say, in the event loop --

    def _in_loop(self, callback: Callable[..., None]) -> Callable[..., None]:
        def call(*args: object) -> None:
            self._loop.call_soon_threadsafe(callback, *args)

        return call

    def _deliver(self, result: StepResult) -> None:
        self._link.report(result.report)
        self._outputs.append(result.outputs)

    def _deliver_verdict(self, verdict: Verdict) -> None:
        self._link.tell_grammar(verdict)
        self._outputs.append(verdict.outputs)

    def _tell_fence(self, fence: int, failure: Failure | None) -> None:
        self._link.tell_fence(fence, failure)

    def _leave(self, reason: str) -> None:
        self._link.reconnect(reason)


async def _watch(
    settings: WorkerSettings, server: rpc.Server, link: SchedulerLink, steps: StepLoop, outputs: Outputs
) -> None:
    """Health is what a frontend or an operator can rely on: attached, and the step loop does not hang. Only a step
    that hangs asks for a restart: a scheduler that is gone comes back."""
    while True:
        if steps.failure is not None:
            raise steps.failure  # requests go on elsewhere, and whoever runs us starts a new process
        alive = steps.step_age_s < settings.step_timeout_s
        await server.set_alive(alive)
        await server.set_serving(alive and link.is_attached)
        for instance in outputs.take_lost():
            logger.warning("frontend %s is lost: its output is not read", instance)
            link.frontend_lost(instance)
        await asyncio.sleep(CHECK_S)


def _hello(
    settings: WorkerSettings, info: RunnerInfo, instance: str, address: str
) -> scheduler_pb2.WorkerHello:
    return scheduler_pb2.WorkerHello(
        worker_id=settings.worker_id,
        worker_instance=instance,
        address=address,
        model=scheduler_pb2.ModelEntry(
            model=info.model,
            max_model_len=info.max_model_len,
            block_size=info.block_size,
            max_request_tokens=min(info.max_model_len, info.num_blocks * info.block_size + 1),
            vocab_size=info.vocab_size,
            eos_token_ids=info.eos_token_ids,
            tokenizer_fingerprint=info.tokenizer_fingerprint,
        ),
        num_slots=settings.num_slots,
        num_blocks=info.num_blocks,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_draft_tokens=info.max_draft_tokens,
        num_host_blocks=info.num_host_blocks,
        kinds=[int(kind) for kind in info.kinds],  # type: ignore[misc]
    )
