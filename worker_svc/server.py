"""Puts the worker service together and runs it until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid

from signalbox import rpc, telemetry
from signalbox.errors import StartupError
from signalbox.metrics_server import MetricsServer
from signalbox.process import settle_memory
from signalbox.v1 import scheduler_pb2, worker_pb2_grpc
from worker_svc import metrics
from worker_svc.config import WorkerSettings
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.worker_core import WorkerCore
from worker_svc.grammar.desk import Verdict
from worker_svc.grammar.preparation import make_preparation
from worker_svc.outputs import Outputs, WorkerServicer
from worker_svc.runner_factory import make_runner
from worker_svc.scheduler_link import SchedulerLink
from worker_svc.step_loop import StepLoop, StepResult
from worker_svc.tracing import RunSpans

logger = logging.getLogger(__name__)
CHECK_S = 0.25
STOP_S = 5.0


async def serve(settings: WorkerSettings, stop: asyncio.Event) -> None:
    """Runs until `stop` is set. Raises StartupError."""
    started = time.monotonic()
    instance = uuid.uuid4().hex
    tracer = telemetry.start("worker", settings.worker_id)
    server = rpc.Server(["signalbox.v1.WorkerService"])
    outputs = Outputs(instance, settings.outbound_log_bytes, settings.frontend_timeout_s)
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(WorkerServicer(outputs), server.grpc)
    metrics_server = MetricsServer()
    metrics_server.start(settings.metrics)
    # Not alive before the model is loaded: that is what startup probes wait for.
    port = await server.start(settings.listen, alive=False)
    loading = asyncio.get_running_loop().run_in_executor(None, make_runner, settings)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        await server.stop(0)
        return
    try:
        runner, drafter = await loading
    except StartupError:
        await server.stop(0)
        raise
    info = runner.info
    logger.info(
        "model %s loaded in %.1f s: %d blocks of %d tokens, up to %d tokens per request",
        info.model,
        time.monotonic() - started,
        info.num_blocks,
        info.block_size,
        info.max_model_len,
    )
    settle_memory()
    loop = asyncio.get_running_loop()

    def deliver(result: StepResult) -> None:
        link.report(result.report)
        outputs.append(result.outputs)

    def deliver_verdict(verdict: Verdict) -> None:
        link.tell_grammar(verdict)
        outputs.append(verdict.outputs)

    # Tokens of the sim runner are hashes: no grammar is about them.
    preparation = make_preparation(settings.model, info) if settings.runner != "sim" else None
    core = WorkerCore(info, settings.num_slots, drafter)
    steps = StepLoop(
        core,
        runner,
        on_result=lambda result: loop.call_soon_threadsafe(deliver, result),  # type: ignore[arg-type,return-value]
        on_refused=lambda reason: loop.call_soon_threadsafe(link.reconnect, reason),  # type: ignore[arg-type,return-value]
        spans=RunSpans(tracer, settings.worker_id, core.table) if tracer.is_on else None,
        preparation=preparation,
        on_verdict=lambda verdict: loop.call_soon_threadsafe(deliver_verdict, verdict),  # type: ignore[arg-type,return-value]
    )
    host = settings.listen.rpartition(":")[0]
    address = settings.advertise or f"{host}:{port}"
    link = SchedulerLink(
        settings.scheduler,
        steps,
        lambda: _hello(settings, info, instance, address),
        outputs.is_open,
    )
    metrics_server.show(
        lambda: metrics.read(steps, core.table, core.draft_totals, outputs, link.is_attached, tracer.counts)
    )
    steps.start()
    tasks = [
        asyncio.create_task(link.run()),
        asyncio.create_task(_watch(settings, server, link, steps, outputs)),
    ]
    await asyncio.wait((*tasks, stopping), return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    await server.stop(0.5)
    await metrics_server.stop()
    steps.stop(STOP_S)
    if preparation is not None:
        preparation.close()
    await asyncio.to_thread(tracer.stop)


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
