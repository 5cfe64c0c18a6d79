"""What stands around a loaded model: the core and its step loop, the outputs, and the link to the scheduler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from prometheus_client.core import Metric

from signalbox.links import rpc, versions
from signalbox.protocol.parts.names import WorkerName
from signalbox.telemetry.spans import Tracer
from signalbox.v1 import from_worker_pb2, shared_pb2
from worker_svc import metrics
from worker_svc.config import WorkerSettings
from worker_svc.core.batch import (
    GraphRunner,
    GroupRunner,
    HandoffRunner,
    ModelRunner,
    RunnerInfo,
    WarmedRunner,
)
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.core.faults.unfit import UnfitError
from worker_svc.core.step import Failure
from worker_svc.core.worker_core import WorkerCore
from worker_svc.disk.making import make_disk_tier
from worker_svc.grammar.coordinator import GrammarResult
from worker_svc.grammar.preparation import make_preparation
from worker_svc.guardian.step_mark import StepMark
from worker_svc.links.delta import build_groups, build_state_group, host_blocks_of
from worker_svc.links.outputs import Outputs
from worker_svc.links.scheduler_link import SchedulerLink
from worker_svc.steps.handoff_coordinator import HandoffListeners, Repeated
from worker_svc.steps.loop import StepLoop, StepResult
from worker_svc.tracing import RunSpans
from worker_svc.transfer.control.news import News
from worker_svc.transfer.control.servicer import TransferServicer
from worker_svc.transfer.control.transfers import Transfers
from worker_svc.transfer.opening import blocks_of, open_server

logger = logging.getLogger(__name__)
CHECK_S = 0.25
DRAIN_TAKEN_S = 0.25
"""How long a worker that was told to stop waits for the scheduler to say that it knows: older ones do not say it."""
DRAIN_POLL_S = 0.01
STOP_S = 5.0
"""How long the steps that have arrived may take when the worker is told to stop."""
MAX_TIMEOUT_MS = (1 << 32) - 1
FLUSH_S = 0.3
"""How long frontends have to read what was made last."""


class Worker:
    """A worker from its first step to its last word."""

    def __init__(
        self,
        settings: WorkerSettings,
        runner: ModelRunner,
        drafter: Drafter | None,
        address: str,
        outputs: Outputs,
        tracer: Tracer,
        mark: StepMark,
        servicer: TransferServicer,
    ) -> None:
        """address: where frontends find us. mark: where the guardian finds which step runs. servicer: by which other
        workers read what is handed over to them."""
        self._settings, self._outputs, self._tracer = settings, outputs, tracer
        self._runner = runner
        self._loop = asyncio.get_running_loop()
        self._disk = make_disk_tier(settings, runner, self._in_loop(self._tell_event))
        info = runner.info if settings.hand_off else replace(runner.info, kv_layout="")
        self._core = WorkerCore(info, info.num_slots, drafter, settings.bad_row_limit)
        # Tokens of the sim runner are hashes: no grammar is about them.
        self._preparation = (
            make_preparation(settings.model, runner.info, settings.form_limits)
            if settings.runner != "sim"
            else None
        )
        self._steps = StepLoop(
            self._core,
            runner,
            on_result=self._in_loop(self._deliver),
            on_refused=self._in_loop(self._reconnect),
            spans=RunSpans(tracer, settings.worker_id, self._core.table) if tracer.is_on else None,
            preparation=self._preparation,
            on_grammar_result=self._in_loop(self._deliver_grammar_result),
            on_fence_ended=self._in_loop(self._tell_fence),
            on_refusal=self._in_loop(outputs.append),
            most_tokens=settings.max_num_batched_tokens,
            on_turn=self._turn_marker(mark),
            handoffs=HandoffListeners(
                self._in_loop(self._take_news), self._in_loop(self._tell_event), self._in_loop(self._repeat)
            ),
            disk=self._disk,
            mask_threads=settings.mask_threads,
            step_timeout_s=settings.step_timeout_s,
        )
        if isinstance(runner, WarmedRunner):
            runner.warm_up.on_compile = mark.compiles
        self._transfers: Transfers | None = None
        if settings.hand_off and runner.info.kv_layout:
            assert isinstance(runner, HandoffRunner)
            name = WorkerName(settings.worker_id, outputs.worker_instance)
            self._transfers = Transfers(
                name,
                runner,
                outputs.unread_of,
                self._steps.arrived,
                server=open_server(settings, blocks_of(runner)),
                checksums=settings.transfer_checksums,
                channels=settings.channel_names,
            )
            servicer.source = self._transfers.source
        self._link = SchedulerLink(
            settings.scheduler,
            self._steps,
            lambda: _hello(settings, runner.info, outputs.worker_instance, address),
            outputs.is_open,
            lambda: mark.turn,
            silence_s=settings.scheduler_silence_ms / 1e3,
            upward=settings.upward,
        )
        if self._disk is not None:
            self._link.on_attached = self._disk.announce
        self._link.on_obeyed = outputs.obey
        outputs.on_open, outputs.on_orders = self._link.frontend_found, self._steps.order

    async def run(self, server: rpc.Server, stopping: asyncio.Task[bool]) -> None:
        """Serves until it is told to stop, and has drained; then it says that it leaves. Raises what the step loop or
        the link failed with."""
        self._steps.start()
        tasks = [asyncio.create_task(self._link.run()), asyncio.create_task(self._watch(server))]
        try:
            await asyncio.wait((*tasks, stopping), return_when=asyncio.FIRST_COMPLETED)
            if stopping.done() and self._settings.drain_time_s:
                tasks.append(asyncio.create_task(self._drain()))
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            await self._leave(server)
        except UnfitError as error:
            await self._link.leave(str(error))
            raise
        except Exception as error:
            await self._link.leave(f"it failed ({type(error).__name__}: {error})", has_crashed=True)
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._transfers is not None:
                await self._transfers.close()
            await asyncio.to_thread(self._steps.close_masks)

    async def _leave(self, server: rpc.Server) -> None:
        """Runs what has arrived, says that there is nothing more to come, and has it read."""
        await server.set_serving(False)
        await asyncio.to_thread(self._steps.stop, STOP_S)
        if self._steps.failure is not None:
            raise self._steps.failure
        await self._link.leave("it was told to stop")
        await self._outputs.flush(FLUSH_S)

    async def _watch(self, server: rpc.Server) -> None:
        """Health is what a frontend or an operator can rely on: attached, and the step loop does not hang. Only a step
        that hangs asks for a restart: a scheduler that is gone comes back."""
        steps, link = self._steps, self._link
        while True:
            if isinstance(self._runner, GroupRunner) and self._runner.failure is not None:
                raise self._runner.failure
            if steps.failure is not None:
                raise steps.failure  # requests go on elsewhere, and whoever runs us starts a new process
            alive = steps.step_age_s < self._settings.step_timeout_s
            await server.set_alive(alive)
            await server.set_serving(alive and link.is_attached)
            for instance in self._outputs.take_lost():
                logger.warning("frontend %s is lost: its output is not read", instance)
                link.frontend_lost(instance)
            await asyncio.sleep(CHECK_S)

    async def _drain(self) -> None:
        """Lets the requests that are here go on to their end for `drain_time_s`."""
        self._link.tell_draining()
        end = self._loop.time() + self._settings.drain_time_s
        await self._link.wait_draining(
            DRAIN_TAKEN_S
        )  # what was placed before the scheduler knew may be on its way
        while self._loop.time() < end:
            await asyncio.sleep(DRAIN_POLL_S)
            if not self._steps.is_empty:  # nor is it held while it waits behind steps that take long
                continue
            _, num_unread, _ = self._outputs.unread()
            # What ended alone, no scheduler is there to acknowledge.
            held = self._core.table.live_slots() if self._steps.is_alone else self._core.held_slots()
            if not held and not num_unread:
                return

    def close(self) -> None:
        """Ends what has threads of its own."""
        if self._preparation is not None:
            self._preparation.close()
        if self._disk is not None:
            self._disk.close(STOP_S)
        if isinstance(self._runner, GroupRunner):
            self._runner.close()

    def metrics(self) -> Iterator[Metric]:
        """The state, as somebody scrapes it."""
        core, link = self._core, self._link
        return metrics.read(
            self._steps,
            core.table,
            core.draft_totals,
            self._outputs,
            link.is_attached,
            self._tracer.counts,
            self._disk,
            self._runner.rank_times if isinstance(self._runner, GroupRunner) else (),
            self._runner.warm_up if isinstance(self._runner, WarmedRunner) else None,
            self._runner.graph_failures if isinstance(self._runner, GraphRunner) else None,
        )

    def _turn_marker(self, mark: StepMark) -> Callable[[int, int], None]:
        """Marks steps for the guardian. It leaves a group of ranks the time to find out which of them hangs (U9)."""
        if self._settings.num_ranks == 1:
            return mark.set
        most_ms = int(self._settings.step_timeout_s * 1e3)
        return lambda step_id, limit_ms: mark.set(step_id, most_ms if limit_ms else 0)

    # -- what the step thread has to say, in the event loop --

    def _in_loop(self, callback: Callable[..., None]) -> Callable[..., None]:
        def call(*args: object) -> None:
            self._loop.call_soon_threadsafe(callback, *args)

        return call

    def _deliver(self, result: StepResult) -> None:
        report = result.report
        if not result.is_own:
            self._link.report(report)
        if self._disk is not None:
            timings = report.timings
            self._disk.stepped(report.num_prefill_tokens, report.num_decode_rows, timings.execute_us)
        self._outputs.append(result.outputs)

    def _deliver_grammar_result(self, result: GrammarResult) -> None:
        self._link.tell_grammar(result)
        self._outputs.append(result.outputs)

    def _tell_fence(self, fence: int, failure: Failure | None) -> None:
        self._link.tell_fence(fence, failure)

    def _take_news(self, news: News) -> None:
        if self._transfers is not None:
            self._transfers.take(news)

    def _tell_event(self, event: from_worker_pb2.WorkerEvent) -> None:
        self._link.tell_event(event)

    def _repeat(self, repeated: Repeated) -> None:
        self._outputs.repeat(repeated.frontend_instance, repeated.batches, repeated.leg)

    def _reconnect(self, reason: str) -> None:
        self._link.reconnect(reason)


def _hello(
    settings: WorkerSettings, info: RunnerInfo, instance: str, address: str
) -> from_worker_pb2.WorkerHello:
    return from_worker_pb2.WorkerHello(
        worker_id=settings.worker_id,
        worker_instance=instance,
        address=address,
        model=shared_pb2.ModelEntry(
            model=info.model,
            max_model_len=info.max_model_len,
            block_size=info.block_size,
            max_request_tokens=min(info.max_model_len, info.num_blocks * info.block_size + 1),
            vocab_size=info.vocab_size,
            tokenizer_fingerprint=info.tokenizer_fingerprint,
            tasks=[int(task) for task in info.tasks],  # type: ignore[misc]
            identity=shared_pb2.ModelIdentity(
                weights=info.identity.weights,
                form=info.identity.form,
                number_class=info.identity.number_class,
            ),
        ),
        num_slots=info.num_slots,
        num_blocks=info.num_blocks,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_draft_tokens=info.max_draft_tokens,
        **host_blocks_of(info),
        kinds=[int(kind) for kind in info.kinds],  # type: ignore[misc]
        reuses_no_blocks=info.num_state_versions > 0,
        state_group=build_state_group(info),
        groups=build_groups(info),
        protocol=versions.ours(has_groups=bool(info.groups), num_lanes=info.num_lanes),
        kv_layout=info.kv_layout if settings.hand_off else "",
        pulls_blocks=settings.hand_off and bool(info.kv_layout),
        role=f"WORKER_ROLE_{settings.role.upper()}",
        num_ranks=settings.num_ranks,
        num_lanes=info.num_lanes,
        step_timeout_ms=min(int(settings.step_timeout_s * 1e3), MAX_TIMEOUT_MS),
    )
