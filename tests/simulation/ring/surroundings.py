"""What the shells find in the virtual world in place of clocks, dice, sockets, threads and models."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import frontend_svc.requests.sessions.session
import frontend_svc.server
import scheduler_svc.core.recovery.snapshot
import scheduler_svc.server
import scheduler_svc.servicer
import scheduler_svc.step_loop
import signalbox.links.rpc
import worker_svc.links.delta
import worker_svc.links.output_logs
import worker_svc.relay.scheduler_link
import worker_svc.relay.server
import worker_svc.relay.servicer
import worker_svc.server
import worker_svc.transfer.control.target
import worker_svc.worker
from frontend_svc.requests.sessions.session import Session, SessionStatus
from scheduler_svc.admin.tenant_file import parse_tenants
from scheduler_svc.core.moves.desk import HandoffDesk
from scheduler_svc.lease import holder_watch, predecessor_link
from scheduler_svc.lease.alone import NoLease
from scheduler_svc.lease.lease import Holder, Lease
from scheduler_svc.lease.polled_lease import PolledLease
from scheduler_svc.lease.spec import LeaseSpec
from scheduler_svc.links.greeting import Greeting
from signalbox.links import reach
from signalbox.protocol.enums import LossCause
from tests.simulation.ring import mover, pair_watch, pull_watch, silence
from tests.simulation.ring.channel import Channel
from tests.simulation.ring.clock import ProcessLoop, World, current_process
from tests.simulation.ring.lease import SimLease, SimStore
from tests.simulation.ring.network import Network
from tests.simulation.ring.rules import watched
from tests.simulation.ring.server import Server
from tests.simulation.ring.setup import Loss
from tests.simulation.ring.step_driver import CheckedCore, StepDriver
from worker_svc.steps.handoff_coordinator import HandoffCoordinator
from worker_svc.transfer.control.gate import Gate
from worker_svc.transfer.control.mover import Mover
from worker_svc.transfer.control.source import TransferSource
from worker_svc.transfer.control.target import TransferTarget

WALL_S = 1_700_000_000.0
"""What wall clocks show at the beginning that are right."""
_REAL_OUTPUTS = worker_svc.server.Outputs
_REAL_ON_LOST = Session.on_lost
_REAL_SCHEDULER = scheduler_svc.server.Scheduler


@contextlib.contextmanager
def inside(world: World, network: Network, part_bytes: int) -> Iterator[None]:
    """For the time of the block the shells live in `world`; `part_bytes`: see RingSetup."""
    rng = random.Random(world.rng.random())
    state = random.getstate()
    Server.network = network
    with contextlib.ExitStack() as stack:
        for target, name, value in [
            *_clocks(world, rng),
            *_network(network),
            *_parts(),
            *_sizes(part_bytes),
            *watched(),
        ]:
            if hasattr(target, name):
                stack.enter_context(mock.patch.object(target, name, value))
        random.seed(rng.random())
        try:
            yield
        finally:
            random.setstate(state)


_Patches = list[tuple[Any, str, Any]]


def _clocks(world: World, rng: random.Random) -> _Patches:
    def wall_s() -> float:
        try:
            loop: object = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        skew = loop.process.clock_skew_s if isinstance(loop, ProcessLoop) else 0.0
        return WALL_S + world.now + skew

    return [
        (time, "monotonic", lambda: world.now),
        (time, "time", wall_s),
        (time, "time_ns", lambda: int(wall_s() * 1e9)),
        (os, "urandom", rng.randbytes),
    ]


def _network(network: Network) -> _Patches:
    return [
        (
            signalbox.links.rpc,
            "channel",
            lambda address, role=None: Channel(network, current_process(), address),
        ),
        (signalbox.links.rpc, "Server", Server),
        *[(module, "refuses", network.refuses) for module in (reach, predecessor_link, holder_watch)],
    ]


def _parts() -> _Patches:
    """What stands in for threads, models, HTTP and locked files; and whatever a node wants to know of its process."""
    servers = (frontend_svc.server, scheduler_svc.server, worker_svc.server, worker_svc.relay.server)
    return [
        *[(module, "settle_memory", lambda: None) for module in servers],
        (frontend_svc.server, "HttpServer", _NoServer),
        (frontend_svc.server, "HttpApi", _NoServer),
        (frontend_svc.requests.sessions.session.Session, "on_lost", _on_lost),
        (worker_svc.server, "make_runner", _make_runner),
        (worker_svc.server, "Outputs", _make_outputs),
        (Mover, "_run", mover.run),
        (TransferTarget, "_run", silence.read_watched),
        (TransferSource, "_tail", silence.tail_watched),
        (HandoffCoordinator, "go_on", silence.go_on_watched),
        (worker_svc.transfer.control.target, "hello_of", silence.hello_watched),
        (HandoffDesk, "stop", pair_watch.stop_watched),
        (HandoffDesk, "begin", pair_watch.begin_watched),
        (HandoffDesk, "hand_over", pair_watch.hand_over_watched),
        (HandoffDesk, "commit", pair_watch.commit_watched),
        (Gate, "passing", pull_watch.passing),
        (worker_svc.worker, "WorkerCore", _remember("core", CheckedCore)),
        (worker_svc.worker, "StepLoop", _remember("steps", StepDriver)),
        (worker_svc.worker, "SchedulerLink", _remember("link", worker_svc.worker.SchedulerLink)),
        (scheduler_svc.server, "Scheduler", _make_scheduler),
        (scheduler_svc.step_loop, "Greeting", _Greeting),
        (scheduler_svc.server, "StepLoop", _remember("loop", scheduler_svc.server.StepLoop)),
        (scheduler_svc.server, "open_lease", _open_lease),
    ]


class _NoServer:
    """Stands in for HTTP and its API: clients of a simulated frontend open sessions themselves."""

    app = batches = task = None

    def __init__(self, *_: Any, **__: Any) -> None: ...

    async def start(self, address: str) -> int:
        """As `HttpServer.start`."""
        return 0

    async def leave(self) -> None:
        """As `HttpServer.leave`."""

    async def stop(self) -> None:
        """As `HttpServer.stop`."""


def _on_lost(session: Session, attempt: int, reason: str, cause: LossCause) -> None:
    """As `Session.on_lost`, and notes it."""
    if attempt == session.attempt and not session.ended:
        ring = current_process().node.ring
        # A worker drops what was never started when its link ends (A1).
        is_running = session.status is SessionStatus.RUNNING and not session.losses.num_losses
        loss = Loss(session.request_id, LossCause(cause).name, is_running and bool(session.output), reason)
        ring.losses.append(loss)
        ring.trace.note(current_process().name, str(loss))
    _REAL_ON_LOST(session, attempt, reason, cause)


def _remember(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
    """Makes what `make` does, and lets the node know it."""

    def call(*args: Any, **options: Any) -> Any:
        made = make(*args, **options)
        setattr(current_process().node, name, made)
        return made

    return call


def _make_outputs(worker_instance: str, *args: Any, **options: Any) -> Any:
    made = _REAL_OUTPUTS(worker_instance, *args, **options)
    current_process().node.outputs = made
    return made


def _make_runner(settings: Any) -> Any:
    node = current_process().node
    return node.runner, node.drafter


def _open_lease(spec: LeaseSpec, us: Holder, duration_s: float) -> Lease:
    ring = current_process().node.ring
    if not spec.kind:
        return NoLease()
    if ring.setup.lease_runs_out:
        return PolledLease(SimStore(ring.lease, us, duration_s), duration_s)
    return SimLease(ring.lease, us)


class _Greeting(Greeting):
    """One that may be refused."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        ring = current_process().node.ring
        if ring.refused_hellos and ring.world.rng.random() < ring.refused_hellos:
            raise ValueError("it was to be refused")


def _make_scheduler(*args: Any, **options: Any) -> Any:
    """With the limits of its tenants."""
    made = _REAL_SCHEDULER(*args, **options)
    node = current_process().node
    node.core = made
    if node.setup.tenants:
        made.queues.set_limits(*parse_tenants(node.setup.tenants, is_json=False))
    return made


def _sizes(part_bytes: int) -> _Patches:
    """How long messages may be before they go in parts."""
    if not part_bytes:
        return []
    return [
        (scheduler_svc.core.recovery.snapshot, "PIECE_SLOTS", 1),
        (worker_svc.links.delta, "PART_BYTES", part_bytes),
        (worker_svc.links.output_logs, "MESSAGE_BYTES", part_bytes),
        (scheduler_svc.servicer, "MAX_BATCH_BYTES", part_bytes),
        (scheduler_svc.step_loop, "MAX_BATCH_BYTES", part_bytes),
        (worker_svc.relay.servicer, "MAX_BATCH_BYTES", part_bytes),
        (worker_svc.relay.scheduler_link, "MAX_BATCH_BYTES", part_bytes),
    ]
