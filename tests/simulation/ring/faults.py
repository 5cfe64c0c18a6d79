"""What goes wrong in a ring."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scheduler_svc.core.moves.desk import HandoffRefusedError
from signalbox.protocol.enums import WorkerRole
from tests.simulation.ring.nodes import Node, SchedulerNode, WorkerNode
from tests.simulation.ring.rules import note
from tests.simulation.ring.setup import Fault

if TYPE_CHECKING:
    from tests.simulation.ring.ring import Ring

NEAR = 1e-6
MOST_STRIKES = 5
STRIKE_S = 0.25
"""How soon behind the order of a pull something goes wrong that is aimed at it, at most."""


class Faults:
    """Makes faults happen, and ends them. Each method begins with one and returns what ends it; None: nothing does."""

    def __init__(self, ring: Ring) -> None:
        self._ring, self._world, self._network = ring, ring.world, ring.network
        self._open: list[Callable[[], None]] = []
        """What ends the faults that last."""
        self._strikes, self._num_strikes = 0.0, 0

    def plan(self, fault: Fault) -> None:
        """It is to come."""
        self._world.at(fault.at, self._begin, fault)

    def _begin(self, fault: Fault) -> None:
        self._ring.trace.note("-", f"FAULT {fault}")
        end: Callable[[], None] | None = getattr(self, fault.kind)(fault)
        if end is not None:

            def finish() -> None:
                if finish in self._open:
                    self._open.remove(finish)
                    self._ring.trace.note("-", f"ends {fault}")
                    end()

            self._open.append(finish)
            self._world.at(max(fault.lasts_s, NEAR), finish)

    def end_all(self) -> None:
        """Ends what lasts still."""
        for finish in list(self._open):
            finish()

    def _node(self, fault: Fault) -> Node:
        return self._ring.nodes[fault.targets[0]]

    # -- processes --

    def kill(self, fault: Fault) -> Callable[[], None]:
        """SIGKILL; it is started again when the fault ends."""
        return self._away(self._node(fault), lambda node: node.kill())

    def terminate(self, fault: Fault) -> Callable[[], None]:
        """SIGTERM; it is started again when the fault ends."""
        return self._away(self._node(fault), lambda node: node.terminate())

    def roll(self, fault: Fault) -> Callable[[], None]:
        """As `terminate`: whoever replaces workers one by one."""
        return self.terminate(fault)

    def power_off(self, fault: Fault) -> Callable[[], None]:
        """The host goes without a word."""
        node = self._node(fault)
        self._network.power_off(node.name)
        back = self._away(node, lambda node: node.kill())

        def end() -> None:
            self._network.power_on(node.name)
            back()

        return end

    def _away(self, node: Node, go: Callable[[Node], None]) -> Callable[[], None]:
        node.is_wanted = False
        go(node)

        def end() -> None:
            node.is_wanted = True
            if not node.is_running and not self._ring.is_over:
                node.start()

        return end

    def freeze(self, fault: Fault) -> Callable[[], None] | None:
        """SIGSTOP, then SIGCONT."""
        process = self._node(fault).process
        if process is None or not process.alive or process.frozen:
            return None
        process.freeze()
        self._network.frozen(process)
        return lambda: process.thaw() if process.frozen else None

    def set_clock(self, fault: Fault) -> None:
        """The wall clock of a host is wrong by `size` from now on."""
        node = self._node(fault)
        node.clock_skew_s = fault.size
        if node.process is not None:
            node.process.clock_skew_s = fault.size

    def share_lease(self, fault: Fault) -> Callable[[], None]:
        """Somebody else may take the lease, and who has it believes in it until the fault ends."""
        lease = self._ring.lease
        lease.holder, lease.is_lenient = None, True

        def end() -> None:
            lease.is_lenient = False

        return end

    # -- paths --

    def cut(self, fault: Fault) -> Callable[[], None]:
        """Nothing goes between two hosts, either way."""
        first, second = fault.targets
        for pair in ((first, second), (second, first)):
            self._network.cut(*pair)

        def end() -> None:
            for pair in ((first, second), (second, first)):
                self._network.heal(*pair)

        return end

    def cut_one_way(self, fault: Fault) -> Callable[[], None]:
        """Nothing goes from one host to another."""
        first, second = fault.targets
        self._network.cut(first, second)
        return lambda: self._network.heal(first, second)

    def refuse_between(self, fault: Fault) -> Callable[[], None]:
        """Dials from one host to another are refused."""
        first, second = fault.targets
        self._network.walls.add((first, second))
        return lambda: self._network.walls.discard((first, second))

    def isolate(self, fault: Fault) -> Callable[[], None]:
        """Nothing goes to and from a host."""
        host = fault.targets[0]
        others = [name for name in self._ring.nodes if name != host]
        for other in others:
            self._network.cut(host, other)
            self._network.cut(other, host)

        def end() -> None:
            for other in others:
                self._network.heal(host, other)
                self._network.heal(other, host)

        return end

    def slow(self, fault: Fault) -> Callable[[], None]:
        """What goes between two hosts takes up to `size` seconds longer."""
        first, second = fault.targets
        self._network.slow(first, second, fault.size)
        self._network.slow(second, first, fault.size)

        def end() -> None:
            self._network.slow(first, second, 0.0)
            self._network.slow(second, first, 0.0)

        return end

    def reset_links(self, fault: Fault) -> None:
        """Connections between two hosts break, and both ends notice."""
        self._network.reset_between(*fault.targets)

    # -- models --

    def hang(self, fault: Fault) -> None:
        """The next step of a worker takes until the fault ends."""
        node = self._node(fault)
        assert isinstance(node, WorkerNode)
        node.trouble.hangs_until = self._world.now + fault.lasts_s

    def compile(self, fault: Fault) -> None:
        """The next step of a worker has a kernel compiled until the fault ends."""
        node = self._node(fault)
        assert isinstance(node, WorkerNode)
        node.trouble.compiles_until = self._world.now + fault.lasts_s

    def slow_steps(self, fault: Fault) -> Callable[[], None]:
        """The steps of a worker take `size` times as long."""
        node = self._node(fault)
        assert isinstance(node, WorkerNode)
        node.trouble.slowness = fault.size

        def end() -> None:
            node.trouble.slowness = 1.0

        return end

    def lose_device(self, fault: Fault) -> None:
        """The model of a worker fails on everything, until its process is another."""
        node = self._node(fault)
        assert isinstance(node, WorkerNode)
        node.trouble.lost_device = True

    def duplicate(self, fault: Fault) -> Callable[[], None] | None:
        """Another process with the id of a worker, which keeps trying."""
        node = self._ring.spares[fault.targets[0]]
        if node.is_wanted:
            return None
        node.is_wanted = True
        node.start()

        def end() -> None:
            node.is_wanted = False
            node.kill()

        return end

    def late_word(self, fault: Fault) -> Callable[[], None]:
        """What a worker says last comes to nobody but the scheduler, and there behind its death, when another process
        is in its place."""
        node, first = self._node(fault), self._ring.schedulers[0].name
        frontends = [frontend.name for frontend in self._ring.frontends]
        self._network.cut(node.name, first)
        for name in frontends:
            self._network.slow(node.name, name, fault.size)

        def die() -> None:
            for name in frontends:
                self._network.reset_between(node.name, name)
                self._network.slow(node.name, name, 0.0)
            node.kill()

        self._world.at(fault.lasts_s / 2, die)
        return lambda: self._network.heal(node.name, first)

    # -- what is refused --

    def firewall(self, fault: Fault) -> None:
        """Two hosts never reach each other."""
        first, second = fault.targets
        self._network.cut(first, second)
        self._network.cut(second, first)

    def refuse_hellos(self, fault: Fault) -> Callable[[], None]:
        """Schedulers find fault with a share of `size` of all that workers say of themselves."""
        self._ring.refused_hellos = fault.size

        def end() -> None:
            self._ring.refused_hellos = 0.0

        return end

    # -- the store of the lease --

    def fail_store(self, fault: Fault) -> Callable[[], None]:
        """A share of `size` of all calls fails, some of them behind what they do."""
        lease = self._ring.lease
        lease.failures = fault.size

        def end() -> None:
            lease.failures = 0.0

        return end

    def slow_store(self, fault: Fault) -> Callable[[], None]:
        """Answers take up to `size` seconds."""
        lease = self._ring.lease
        lease.slow_s = fault.size

        def end() -> None:
            lease.slow_s = 0.0

        return end

    def store_clock(self, fault: Fault) -> None:
        """The store's clock jumps ahead: leases run out early."""
        self._ring.lease.ahead_s += fault.size

    # -- orders of operators --

    def drain(self, fault: Fault) -> Callable[[], None]:
        """Nothing is placed on a worker."""
        node = self._node(fault)
        assert isinstance(node, WorkerNode)
        worker_id = node.worker_id
        self._order(lambda loop: loop.drain_worker(worker_id, True))

        def resume(loop: Any) -> None:
            left = len(loop.core.workers[worker_id].requests())
            self._ring.handoffs.counts["drained in part" if left else "drained"] += 1
            loop.drain_worker(worker_id, False)

        return lambda: self._order(resume)

    def expect_drained(self, fault: Fault) -> None:
        """A rule: a worker that drains has nothing left now."""

        def look(loop: Any) -> None:
            left = loop.core.workers[fault.targets[0]].requests()
            if left:
                note(f"{len(left)} requests are left at {fault.targets[0]}, which drains (HO21)")

        self._order(look)

    def flip_role(self, fault: Fault) -> None:
        """A worker is there for something else from now on; `size` is the role's number."""

        def order(loop: Any) -> None:
            worker = loop.core.workers.get(fault.targets[0])
            if worker is not None:
                worker.role = WorkerRole(int(fault.size))
                loop.tick()

        self._order(order)

    def hand_over(self, fault: Fault) -> None:
        """One of the requests that others have is to go on at a worker; `size` says which."""

        def order(loop: Any) -> None:
            core, target = loop.core, fault.targets[0]
            placed = [
                (str(key), key) for key, each in core.requests.items() if each.worker_id not in (None, target)
            ]
            if placed:
                key = sorted(placed)[int(fault.size * len(placed))][1]
                self._ring.trace.note("-", f"{key} is to go to {target}")
                with contextlib.suppress(HandoffRefusedError):
                    core.hand_over(key, target, self._world.now)
                    loop._advance()

        self._order(order)

    def strike_pulls(self, fault: Fault) -> Callable[[], None]:
        """A share of the pulls, MOST_STRIKES at most, meets something that goes wrong."""
        self._strikes, self._num_strikes = fault.size, MOST_STRIKES

        def end() -> None:
            self._strikes = 0.0

        return end

    def pull_begins(self, target: str, source: str) -> None:
        """A worker was told to read from another."""
        rng = self._world.rng
        if not self._num_strikes or rng.random() >= self._strikes:
            return
        self._num_strikes -= 1
        either = rng.choice((target, source))
        strikes = (
            Fault(0.0, "kill", (either,), 0.3),
            Fault(0.0, "kill", ("s0",), rng.uniform(0.05, 0.5)),
            Fault(0.0, "reset_links", (either, "s0")),
            Fault(0.0, "reset_links", (either, "s0")),
            Fault(0.0, "cut", (either, "s0"), rng.uniform(0.1, 4.0)),
            Fault(0.0, "reset_links", (target, source)),
            Fault(0.0, "cut", (target, source), rng.uniform(0.1, 3.0)),
        )
        self._world.at(rng.uniform(0.0, STRIKE_S), self._begin, rng.choice(strikes))

    def reset_cache(self, fault: Fault) -> None:
        """All cached blocks are forgotten."""
        self._order(lambda loop: loop.core.reset_prefix_cache())

    def safe_mode(self, fault: Fault) -> Callable[[], None]:
        """Classes below a level are suspended."""
        self._order(lambda loop: loop.set_safe_mode(int(fault.size)))
        return lambda: self._order(lambda loop: loop.lift_safe_mode())

    def _order(self, order: Callable[..., object]) -> None:
        for node in self._ring.schedulers:
            if node.is_running and node.process is not None and node.loop is not None:

                def act(node: SchedulerNode = node) -> None:
                    if node.loop is None:  # it has just started again
                        return
                    with contextlib.suppress(KeyError, ValueError):  # it is not known there, or not now
                        order(node.loop)

                self._world.at(0.0, act, process=node.process)
