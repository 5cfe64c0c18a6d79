"""Tells a scheduler that it leads no more: it may be cut off from the store of the lease, and not know (B2)."""

from __future__ import annotations

import asyncio
import logging

import grpc

from signalbox.links import rpc
from signalbox.links.reach import refuses
from signalbox.links.tls.roles import Role
from signalbox.v1 import scheduler_pb2, scheduler_pb2_grpc

logger = logging.getLogger(__name__)
ANSWER_S = 0.5
EVERY_S = 1.0
TELL_FOR_S = 600.0
"""A stopped process, or one that is cut off from us, too, may come back."""


async def tell_predecessor(address: str, counter: int) -> None:
    """Returns when the scheduler at `host:port` has heard that the lease is ours by `counter`, or nothing listens
    there."""
    clock = asyncio.get_running_loop()
    give_up = clock.time() + TELL_FOR_S
    while clock.time() < give_up and not await refuses(address):
        async with rpc.channel(address, Role.SCHEDULER) as channel:
            stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
            try:
                await stub.FindLeader(
                    scheduler_pb2.FindLeaderRequest(lease_counter=counter), timeout=ANSWER_S
                )
            except grpc.aio.AioRpcError as error:
                logger.info("the leader before us at %s does not answer: %s", address, error.code().name)
            else:
                return
        await asyncio.sleep(EVERY_S)
