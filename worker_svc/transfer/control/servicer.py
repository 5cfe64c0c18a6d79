"""Serves signalbox.v1.TransferService: workers read what is handed over to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from signalbox.errors import InvalidRequestError, SignalboxError, UnavailableError
from signalbox.links.readable import first_message
from signalbox.links.rpc import abort
from signalbox.links.tls.guard import instance_in, names_of
from signalbox.links.tls.owners import Owners, check_worker
from signalbox.links.tls.roles import Role
from signalbox.v1 import transfer_pb2, transfer_pb2_grpc
from worker_svc.transfer.control.feed import Responses
from worker_svc.transfer.control.source import TransferSource

Context = grpc.aio.ServicerContext[Any, Any]


class TransferServicer(transfer_pb2_grpc.TransferServiceServicer):
    """The control streams of targets."""

    def __init__(self) -> None:
        self.source: TransferSource | None = None
        """What there is to be read; None: nothing."""
        self._owners = Owners()

    async def Pull(  # noqa: N802
        self, requests: AsyncIterator[transfer_pb2.PullRequest], context: Context
    ) -> Responses:
        """The life of one target's stream."""
        try:
            first = await first_message(requests)
            if first is None or not first.HasField("hello"):
                raise InvalidRequestError("the first message must be a hello", field="hello")
            if self.source is None:
                raise UnavailableError("this worker hands nothing over")
            check_worker(instance_in(context, Role.WORKER), first.hello.target.worker_id, "hello.target")
            self._owners.check(first.hello.target.worker_instance, names_of(context))
            async for response in self.source.pull(first.hello, requests):
                yield response
        except SignalboxError as error:
            await abort(context, error)
