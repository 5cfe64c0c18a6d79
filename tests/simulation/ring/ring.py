"""One simulated run of a ring: the real shells of all services on a virtual clock and a virtual network, with the rules
of the design checked as it goes."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from tests.simulation.ring.checks import Checks
from tests.simulation.ring.client import Client
from tests.simulation.ring.clock import World
from tests.simulation.ring.excuses import concerns_workers, may_lose, unexcused
from tests.simulation.ring.faults import Faults
from tests.simulation.ring.handoff_watch import Ledger
from tests.simulation.ring.hangs import hangs_too_long
from tests.simulation.ring.lease import SharedLease
from tests.simulation.ring.mask_watch import MaskWatch
from tests.simulation.ring.network import Network
from tests.simulation.ring.nodes import FrontendNode, Node, RelayNode, SchedulerNode, WorkerNode
from tests.simulation.ring.pair_watch import PairWatch
from tests.simulation.ring.request import RingRequest
from tests.simulation.ring.setup import Loss, Planned, Plot
from tests.simulation.ring.silence import stands_too_long
from tests.simulation.ring.surroundings import inside
from tests.simulation.ring.trace import Trace, TraceLog

STUCK_S = 200.0
"""Every client is told of an end within this time after the last fault."""
LOOK_S = 0.1
MAY_LAST = {"hang", "compile", "freeze"}
"""Kinds of faults in which a step may take long."""
SHORT_S = 4.0
"""A step that takes so long does not count as hung."""
REST_S = 30.0
"""Nothing is left so long after that."""


@dataclass
class Outcome:
    """What a run came to."""

    num_events: int
    seconds: float
    num_losses: int
    num_requests: int
    errors: list[str] = field(default_factory=list)
    """Ends that were errors."""
    counts: dict[str, int] = field(default_factory=dict)


class Ring:
    """All processes of one run."""

    def __init__(self, plot: Plot, *, trace: bool = False) -> None:
        self.plot, self.setup = plot, plot.setup
        self.world = World(plot.seed)
        self.network = Network(self.world)
        self.trace = Trace(self.world, trace)
        self.is_over = False
        setup = plot.setup
        self.schedulers = [SchedulerNode(self, f"s{number}") for number in range(setup.num_schedulers)]
        self.workers = [WorkerNode(self, f"w{number}", f"w{number}") for number in range(setup.num_workers)]
        self.frontends = [FrontendNode(self, f"f{number}") for number in range(setup.num_frontends)]
        self.relays = [RelayNode(self, "r0")] if setup.with_relay else []
        twins = sorted({fault.targets[0] for fault in plot.faults if fault.kind == "duplicate"})
        self.spares = {worker_id: WorkerNode(self, f"d{worker_id}", worker_id) for worker_id in twins}
        """Second processes of a worker's id, by that."""
        self.refused_hellos = 0.0
        """Share of hellos that schedulers refuse."""
        self.clients: list[Client] = []
        self.losses: list[Loss] = []
        self.num_poisoned = 0
        """Workers that crashed of what they computed."""
        self.num_hung = 0
        """Workers that were ended because a step was over its limit."""
        self.num_to_hang = sum(planned.request.is_hanging for planned in plot.requests)
        self.has_guards = self.num_to_hang > 0 or any(fault.kind in MAY_LAST for fault in plot.faults)
        """Somebody looks whether steps hang: where none does, nobody need look."""
        self.findings: list[str] = []
        """Rules that were broken where no error would have stopped the run."""
        self.checks = Checks(self)
        self.handoffs = Ledger(is_strict=all(concerns_workers(fault) for fault in plot.faults))
        self.pair_watches: dict[object, PairWatch] = {}
        """By the desk of hand-offs of a scheduler process."""
        self.masks = MaskWatch()
        self.faults = Faults(self)
        self.lease = SharedLease(self.world)
        self.expected: Callable[[RingRequest], list[int]] = lru_cache(
            lambda request: request.expected(setup.vocab_size, setup.limit)
        )

    @property
    def nodes(self) -> dict[str, Node]:
        """All of them, by name."""
        nodes: list[Node] = [*self.schedulers, *self.relays, *self.workers, *self.frontends]
        nodes += self.spares.values()
        return {node.name: node for node in nodes}

    def run(self) -> Outcome:
        """From the start of the first process until nothing is left."""
        log, handler = logging.getLogger(), TraceLog(self.trace)
        level = log.level
        handlers, log.handlers = log.handlers, [handler] if self.trace.is_on else []
        log.setLevel(logging.INFO if self.trace.is_on else logging.CRITICAL + 1)
        gc_was_on = gc.isenabled()
        gc.disable()
        try:
            with inside(self.world, self.network, self.setup.part_bytes):
                return self._run()
        finally:
            self.is_over = True
            self.trace.is_on = False
            self.world.close()
            log.handlers = handlers
            log.setLevel(level)
            if gc_was_on:
                gc.enable()

    def _run(self) -> Outcome:
        if self.plot.check_every:
            self.world.after_event, self.world.look_every = self.checks.after_event, self.plot.check_every
        for node in self.spares.values():
            node.is_wanted = False
        for node in self.nodes.values():
            if node.is_wanted:
                self.world.at(self.world.rng.uniform(0, 0.05), node.start)
        begins = [self.plot.warm_up_s, *(fault.at for fault in self.plot.faults)]
        for planned in self.plot.requests:
            self.world.at(planned.at, self._call, planned)
            begins.append(planned.at)
        for fault in self.plot.faults:
            self.faults.plan(fault)
        self.world.run(max(begins) + 0.01)
        last = max((fault.at + fault.lasts_s for fault in self.plot.faults), default=0.0)
        self._wait(last + 0.01 - self.world.now, self._may_end)
        self.faults.end_all()
        self.trace.note("-", "all faults are over")
        is_over = self._wait(
            STUCK_S, lambda: bool(self.findings) or all(client.is_over for client in self.clients)
        )
        assert not self.findings, self.findings
        waiting = [str(client) for client in self.clients if not client.is_over]
        assert is_over, f"at {self.world.now:.1f} s clients wait: {waiting}"
        self.trace.note("-", "no client waits")
        self._wait(REST_S, lambda: not self.checks.what_is_left())
        left = self.checks.what_is_left()
        assert not left, f"at {self.world.now:.1f} s: {left}"
        for client in self.clients:
            client.check()
            finding = unexcused(self.plot, client)
            assert not finding, finding
            finding = stands_too_long(self.plot, client) or hangs_too_long(client)
            assert not finding, finding
        for node in self.schedulers:
            self.masks.looked_at(node.core)
        self.masks.check(
            is_calm=not (self.plot.faults or self.losses or self.num_poisoned),
            num_leaving=sum(planned.request.leaves_after_s is not None for planned in self.plot.requests),
        )
        lost = [loss for loss in self.losses if self.plot.loses_nothing or not may_lose(self.plot, loss)]
        assert not lost, f"nothing excuses that these were computed again: {lost}"
        most = 2 * sum(planned.request.is_poison for planned in self.plot.requests)
        if not self.plot.faults and self.setup.guardians == 1.0:
            assert self.num_poisoned <= most, f"a poison cost {self.num_poisoned} workers"
        if all(fault.kind != "hang" or fault.lasts_s < SHORT_S for fault in self.plot.faults):
            assert self.num_hung <= 2 * self.num_to_hang, f"{self.num_hung} workers were ended for a hang"
        return self._outcome()

    def _may_end(self) -> bool:
        """Nobody waits for what the faults are in the way of."""
        return self.plot.ends_early and all(client.is_over for client in self.clients)

    def _wait(self, seconds: float, until: Callable[[], bool]) -> bool:
        """Lets time pass until `until` holds; False when `seconds` have passed before."""
        end = self.world.now + seconds
        while not until():
            if self.world.now >= end:
                return False
            self.world.run(LOOK_S)
        return True

    def _call(self, planned: Planned) -> None:
        """A client comes, unless its frontend is away."""
        node, request = self.frontends[planned.frontend], planned.request
        if not node.is_running or node.frontend is None or node.frontend.processor.stopping:
            return
        process = node.process
        assert process is not None
        client = Client(self, node, request)
        self.clients.append(client)
        size = f"{len(request.prompt)} tokens, up to {request.max_tokens} more"
        self.trace.note(node.name, f"{request.request_id} comes: {size}")
        self.world.at(0.0, lambda: process.spawn(client.run()), process=process)

    def _outcome(self) -> Outcome:
        return Outcome(
            num_events=self.world.num_events,
            seconds=self.world.now,
            num_losses=len(self.losses),
            num_requests=len(self.clients),
            errors=[
                f"{client.request.request_id}: {client.finished.error}"
                for client in self.clients
                if client.finished is not None and client.finished.error is not None
            ],
            counts=dict(self.handoffs.counts),
        )
