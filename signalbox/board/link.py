"""Watches the board of a scheduler: its messages as plain values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from signalbox.board.snapshot import (
    Board,
    Checkpoints,
    Disk,
    Group,
    Percentiles,
    Queue,
    Request,
    Times,
    Worker,
)
from signalbox.cli.safe_mode import SafeMode
from signalbox.errors import UnavailableError
from signalbox.links.leader import leader_search
from signalbox.links.readable import EOF, read_message
from signalbox.links.rpc_errors import error_of
from signalbox.protocol.enums import WorkerRole
from signalbox.v1 import admin_pb2, admin_pb2_grpc, shared_pb2

T = TypeVar("T")
SILENT_S = 10.0
"""Longest time between two snapshots; usual are half a second to one."""
_HEALTHS = {
    admin_pb2.WORKER_HEALTH_SILENT: "silent",
    admin_pb2.WORKER_HEALTH_HUNG: "hung",
    admin_pb2.WORKER_HEALTH_SLOW: "slow",
    admin_pb2.WORKER_HEALTH_AWAY: "away",
}
_KINDS = {
    number: name.removeprefix("BLOCK_GROUP_KIND_").lower()
    for name, number in shared_pb2.BlockGroupKind.items()
}
_PHASES = {number: name.removeprefix("BOARD_PHASE_").lower() for name, number in admin_pb2.BoardPhase.items()}


async def watch_board(addresses: str) -> AsyncGenerator[Board, None]:
    """Snapshots of the scheduler that leads among `host:port,host:port`, until it ends the stream. What goes wrong is
    raised as one of signalbox/errors.py."""
    async with leader_search(addresses) as search:
        leader = await search.find()
        stub: Any = admin_pb2_grpc.AdminServiceStub(leader.channel)
        call = stub.WatchBoard(admin_pb2.WatchBoardRequest())
        try:
            while (snapshot := await _next_of(call, leader.address)) is not EOF:
                yield read_board(snapshot)
        except grpc.aio.AioRpcError as error:
            raise error_of(error, leader.address) from None
        finally:
            call.cancel()


async def _next_of(call: Any, address: str) -> Any:
    """The next snapshot; EOF when the stream has ended. UnavailableError when the scheduler at `address` is silent."""
    try:
        async with asyncio.timeout(SILENT_S):
            return await read_message(call)
    except TimeoutError:
        raise UnavailableError(f"the scheduler at {address} has sent no board for {SILENT_S:g} s") from None
    except ConnectionError as error:
        raise UnavailableError(f"the scheduler at {address}: {error}") from None


def read_board(snapshot: admin_pb2.WatchBoardResponse) -> Board:
    """The board that a message has, as plain values."""
    return Board(
        scheduler_epoch=snapshot.scheduler_epoch,
        at_ms=snapshot.at_ms,
        num_waiting=snapshot.num_waiting,
        num_frontends=snapshot.num_frontends,
        queues=tuple(_values(Queue, queue) for queue in snapshot.queues),
        workers=tuple(map(_read_worker, snapshot.workers)),
        requests=tuple(
            _values(Request, request, phase=_PHASES[request.phase]) for request in snapshot.requests
        ),
        times=Times(
            _values(Percentiles, snapshot.times.first_token), _values(Percentiles, snapshot.times.inter_token)
        ),
        safe_mode=read_safe_mode(snapshot.safe_mode),
    )


def _read_worker(worker: admin_pb2.BoardWorker) -> Worker:
    return _values(
        Worker,
        worker,
        health=health_of(worker.health),
        groups=read_groups(worker),
        checkpoints=read_checkpoints(worker),
        role=role_of(worker.role),
        disk=read_disk(worker),
    )


def read_groups(worker: admin_pb2.BoardWorker | admin_pb2.WorkerStatus) -> tuple[Group, ...]:
    """The groups of a worker as values, in order."""
    return tuple(
        _values(Group, group, kind=_KINDS.get(group.kind, f"kind {group.kind}")) for group in worker.groups
    )


def read_checkpoints(worker: admin_pb2.BoardWorker | admin_pb2.WorkerStatus) -> Checkpoints | None:
    """The checkpoints of a worker as values; None: it keeps none."""
    return _values(Checkpoints, worker.checkpoints) if worker.HasField("checkpoints") else None


def read_disk(worker: admin_pb2.BoardWorker | admin_pb2.WorkerStatus) -> Disk | None:
    """The disk tier of a worker as values; None: it has none."""
    return _values(Disk, worker.disk) if worker.HasField("disk") else None


def role_of(value: shared_pb2.WorkerRole) -> str:
    """A word; one that nobody has said, or of another version, is both."""
    return WorkerRole(value).name.lower() if int(value) in set(WorkerRole) else "both"


def health_of(value: admin_pb2.WorkerHealth) -> str:
    """A word; one that nobody has said, or of another version, is good."""
    return _HEALTHS.get(value, "good")


def read_safe_mode(status: admin_pb2.SafeModeStatus) -> SafeMode:
    """The message as values; what is unset becomes None."""
    unset = ("operator_level", "budget_level", "burn_rate")
    return _values(SafeMode, status, **{name: None for name in unset if not status.HasField(name)})


def _values(kind: type[T], message: Message, /, **values: object) -> T:
    """A dataclass from the fields of the same names."""
    names = kind.__dataclass_fields__  # type: ignore[attr-defined]
    return kind(**{name: values[name] if name in values else getattr(message, name) for name in names})
