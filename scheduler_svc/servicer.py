"""The streams of frontends and workers, and the status calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc

from scheduler_svc.core.worker import Worker
from scheduler_svc.step_loop import DivergenceError, StepLoop
from signalbox.errors import InvalidRequestError
from signalbox.outbox import Outbox
from signalbox.rpc import abort
from signalbox.v1 import scheduler_pb2, scheduler_pb2_grpc

logger = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]


class SchedulerServicer(scheduler_pb2_grpc.SchedulerServiceServicer):
    """signalbox.v1.SchedulerService over a step loop."""

    def __init__(self, loop: StepLoop) -> None:
        self._loop = loop

    async def AttachWorker(  # noqa: N802
        self, requests: AsyncIterator[scheduler_pb2.AttachWorkerRequest], context: Context
    ) -> None:
        """The life of one worker's stream."""
        first = await anext(aiter(requests), None)
        if first is None or not first.HasField("hello"):
            await abort(context, InvalidRequestError("the first message must carry hello", field="hello"))
        worker_id = first.hello.worker_id
        try:
            link = self._loop.attach_worker(first.hello)
        except ValueError as error:
            await abort(context, InvalidRequestError(str(error), field="hello"))
        await context.send_initial_metadata(())
        writer = asyncio.create_task(_write_to_worker(link.outbox, context))
        try:
            async for message in requests:
                if not self._loop.is_current(worker_id, link):
                    return
                self._loop.on_worker(worker_id, message)
        except DivergenceError as error:
            logger.error("worker %s is out of step (%s); it is asked for its snapshot", worker_id, error)
        finally:
            writer.cancel()
            self._loop.detach_worker(worker_id, link)

    async def AttachFrontend(  # noqa: N802
        self, requests: AsyncIterator[scheduler_pb2.AttachFrontendRequest], context: Context
    ) -> None:
        """The life of one frontend's stream."""
        first = await anext(aiter(requests), None)
        if first is None or not first.HasField("hello"):
            await abort(context, InvalidRequestError("the first message must carry hello", field="hello"))
        link = self._loop.attach_frontend(first.hello)
        await context.send_initial_metadata(())
        writer = asyncio.create_task(_write_to_frontend(link.outbox, context))
        try:
            self._loop.on_frontend(link, first)
            async for message in requests:
                self._loop.on_frontend(link, message)
        finally:
            writer.cancel()
            self._loop.detach_frontend(link)

    async def GetStatus(  # noqa: N802
        self, request: scheduler_pb2.GetStatusRequest, context: Context
    ) -> scheduler_pb2.GetStatusResponse:
        """Queue, workers and cache as they are now."""
        core = self._loop.core
        return scheduler_pb2.GetStatusResponse(
            scheduler_epoch=core.epoch,
            num_waiting=core.num_waiting,
            num_frontends=self._loop.num_frontends,
            workers=[_status(worker) for worker in core.workers.values()],
        )

    async def ResetPrefixCache(  # noqa: N802
        self, request: scheduler_pb2.ResetPrefixCacheRequest, context: Context
    ) -> scheduler_pb2.ResetPrefixCacheResponse:
        """Forgets all cached blocks."""
        return scheduler_pb2.ResetPrefixCacheResponse(num_blocks=self._loop.core.reset_prefix_cache())


async def _write_to_worker(outbox: Outbox[scheduler_pb2.AttachWorkerResponse], context: Context) -> None:
    """The one writer of a worker's stream: what waits travels in one message."""
    while True:
        first, *others = await outbox.take()
        for other in others:
            first.MergeFrom(other)
        await context.write(first)


async def _write_to_frontend(outbox: Outbox[scheduler_pb2.AttachFrontendResponse], context: Context) -> None:
    """The one writer of a frontend's stream: what waits travels in one message, with the newest directory only."""
    while True:
        first, *others = await outbox.take()
        for other in others:
            if other.HasField("workers"):
                first.ClearField("workers")
            first.MergeFrom(other)
        await context.write(first)


def _status(worker: Worker) -> scheduler_pb2.WorkerStatus:
    stats = worker.stats
    return scheduler_pb2.WorkerStatus(
        worker_id=worker.info.worker_id,
        address=worker.info.address,
        model=worker.info.model,
        attached=worker.attached,
        num_running=worker.num_running,
        num_preempted=len(worker.preempted),
        num_blocks=worker.pool.num_blocks,
        num_free_blocks=worker.pool.num_free,
        num_cached_blocks=worker.pool.num_cached,
        num_inflight_steps=len(worker.records),
        num_steps=stats.num_steps,
        num_preemptions=stats.num_preemptions,
        num_prefix_hit_tokens=stats.num_prefix_hit_tokens,
        num_prefix_query_tokens=stats.num_prefix_query_tokens,
        num_output_tokens=stats.num_output_tokens,
    )
