"""A network of streams: each way in order, with delays; paths are cut and healed, and ends notice as TCP and
keepalives let them.

What is sent into a cut path waits there, as TCP would send it again, and arrives when the path heals if the connection
still stands then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.simulation.ring.clock import Process, World, current_process

KEEPALIVE_S = (20.0, 30.0)
"""An end that hears nothing of the other for so long gives the connection up."""
CONNECT_TIMEOUT_S = 20.0
RETRANSMIT_S = 0.6
"""Longest time between a path's healing and the arrival of what waited for it."""


class Server(Protocol):
    """Takes connections at an address."""

    def accept(self, end: End) -> None:
        """Somebody has connected; runs in the server's process."""


class Receiver(Protocol):
    """Whoever holds an end of a connection."""

    def receive(self, frame: Any) -> None:
        """Something arrived."""

    def broken(self, reason: str) -> None:
        """The connection is gone; nothing more comes."""


class End:
    """One end of a connection."""

    def __init__(self, network: Network, process: Process) -> None:
        self.network, self.process = network, process
        self.peer: End
        self.receiver: Receiver | None = None
        self.is_open = True
        self._free_at = 0.0
        self._held: list[Any] = []
        """What waits for the path to heal."""

    def send(self, frame: Any) -> None:
        """On its way to the other end, behind all that was sent before."""
        if not self.is_open:
            return
        if self._held or self.network.is_cut(self.process.host, self.peer.process.host):
            self._held.append(frame)
            return
        self._launch(frame, 0.0)

    def _launch(self, frame: Any, extra_s: float) -> None:
        network = self.network
        delay = network.delay_s(self.process.host, self.peer.process.host) + extra_s
        at = self._free_at = max(self._free_at, network.world.now + delay)
        network.world.at(at - network.world.now, self.peer._arrive, frame, process=self.peer.process)

    def heal(self) -> None:
        """The path goes through again."""
        held, self._held = self._held, []
        extra = self.network.world.rng.uniform(0.0, RETRANSMIT_S)
        for frame in held:
            self._launch(frame, extra)
        if not held and not self.is_open:
            self.network.reset(self)

    def _arrive(self, frame: Any) -> None:
        if not self.is_open:
            if frame is not RESET:
                self.network.reset(self)
        elif frame is RESET:
            self.give_up("Connection reset by peer")
        elif self.receiver is not None:
            self.receiver.receive(frame)

    def close(self) -> None:
        """From this side, in good order or because the process is gone: the other side is told behind all else."""
        if self.is_open:
            self.send(RESET)
            self.is_open = False
            self.network.forget(self)

    def give_up(self, reason: str) -> None:
        """This end finds the connection broken."""
        if self.is_open:
            self.is_open = False
            self.network.forget(self)
            if self.receiver is not None and self.process.alive:
                self.receiver.broken(reason)


RESET = object()
"""The frame that says that the other end is gone."""


@dataclass
class _Pending:
    """A dial on its way."""

    on_open: Callable[[End], None]
    on_failed: Callable[[str], None]
    is_over: bool = False


@dataclass
class Network:
    """All connections, and which paths go through."""

    world: World
    min_delay_s: float = 0.0002
    max_delay_s: float = 0.003
    listeners: dict[str, tuple[Process, Server]] = field(default_factory=dict)
    """By address."""
    _cut: dict[tuple[str, str], int] = field(default_factory=dict)
    """By (from, to) host: how many faults cut the path now."""
    _slow: dict[tuple[str, str], float] = field(default_factory=dict)
    """Most extra seconds of what goes there."""
    walls: set[tuple[str, str]] = field(default_factory=set)
    """(from, to) hosts between which dials are refused; what is open stays."""
    down: set[str] = field(default_factory=set)
    """Hosts that are off: nothing refuses, nothing answers."""
    _ends: list[End] = field(default_factory=list)
    """Of connections with an end that is open."""

    # -- paths --

    def is_cut(self, source: str, target: str) -> bool:
        """Nothing goes from `source` to `target`."""
        return bool(self._cut.get((source, target))) or source in self.down or target in self.down

    def delay_s(self, source: str, target: str) -> float:
        """Of one message."""
        slow = self._slow.get((source, target), 0.0)
        rng = self.world.rng
        return rng.uniform(self.min_delay_s, self.max_delay_s) + (rng.uniform(0, slow) if slow else 0.0)

    def cut(self, source: str, target: str) -> None:
        """From now on nothing goes from `source` to `target`; neither is told."""
        self._cut[source, target] = self._cut.get((source, target), 0) + 1
        self._watch(lambda end: {end.process.host, end.peer.process.host} == {source, target})

    def heal(self, source: str, target: str) -> None:
        """Ends one `cut`."""
        self._cut[source, target] -= 1
        if not self.is_cut(source, target):
            self._flush(lambda end: (end.process.host, end.peer.process.host) == (source, target))

    def slow(self, source: str, target: str, most_s: float) -> None:
        """What goes there takes longer; 0: as long as usual."""
        self._slow[source, target] = most_s

    def reset_between(self, first: str, second: str) -> None:
        """All connections between two hosts break, and both ends notice."""
        for end in list(self._ends):
            if end.is_open and {end.process.host, end.peer.process.host} == {first, second}:
                wait = self.world.rng.uniform(0, 0.05)
                self.world.at(wait, end.give_up, "Connection reset by peer", process=end.process)

    def power_off(self, host: str) -> None:
        """The host is gone without a word; its processes are to be ended behind this."""
        self.down.add(host)
        self._watch(lambda end: host in (end.process.host, end.peer.process.host))

    def power_on(self, host: str) -> None:
        """The host answers again, and knows nothing of earlier connections."""
        self.down.discard(host)
        self._flush(lambda end: host in (end.process.host, end.peer.process.host))

    def frozen(self, process: Process) -> None:
        """A process answers no keepalive."""
        self._watch(lambda end: end.peer.process is process)

    def _watch(self, concerns: Callable[[End], bool]) -> None:
        """Has the ends that are concerned look later whether the other one is still away."""
        for end in list(self._ends):
            if end.is_open and concerns(end):
                self._expect_keepalive(end)

    def _expect_keepalive(self, end: End) -> None:
        world, started = self.world, self.world.now
        wait = world.rng.uniform(*KEEPALIVE_S)

        def look() -> None:
            if end.is_open and self._unheard_since(end) <= started:
                end.give_up("keepalive watchdog timeout")

        world.at(wait, look, process=end.process)

    def _unheard_since(self, end: End) -> float:
        """Since when nothing can have come back from the other end, roughly; now: something can."""
        peer = end.peer.process
        hosts = (end.process.host, peer.host)
        if self.is_cut(*hosts) or self.is_cut(*reversed(hosts)):
            return 0.0
        return peer.frozen_since if peer.frozen and peer.alive else self.world.now

    def _flush(self, concerns: Callable[[End], bool]) -> None:
        for end in [end for end in self._ends if concerns(end)]:
            end.heal()

    # -- connections --

    def listen(self, address: str, process: Process, server: Server) -> None:
        """From now on dials to `address` come to `server`."""
        self.listeners[address] = (process, server)

    def stop_listening(self, address: str, process: Process) -> None:
        """Dials are refused, unless somebody else listens there."""
        if address in self.listeners and self.listeners[address][0] is process:
            del self.listeners[address]

    def ended(self, process: Process) -> None:
        """A process is gone: its kernel closes all that it had."""
        for address in [at for at, (owner, _) in self.listeners.items() if owner is process]:
            del self.listeners[address]
        for end in [end for end in self._ends if end.process is process]:
            end.close()

    def dial(
        self,
        process: Process,
        address: str,
        on_open: Callable[[End], None],
        on_failed: Callable[[str], None],
    ) -> None:
        """Connects `process` to whoever listens at `address`; one of the two is called there, in its time."""
        pending = _Pending(on_open, on_failed)
        host = address.rpartition(":")[0]
        self.world.at(CONNECT_TIMEOUT_S, self._fail, pending, "Deadline Exceeded", process=process)
        self._syn(process, host, address, pending)

    def _syn(self, process: Process, host: str, address: str, pending: _Pending) -> None:
        """One try: what is lost is sent again a second later."""
        if pending.is_over or not process.alive:
            return
        if self.is_cut(process.host, host):
            self.world.at(1.0, self._syn, process, host, address, pending)
            return
        self.world.at(self.delay_s(process.host, host), self._knock, process, host, address, pending)

    def _knock(self, process: Process, host: str, address: str, pending: _Pending) -> None:
        listener = self.listeners.get(address)
        if self.is_cut(host, process.host):
            self.world.at(1.0, self._syn, process, host, address, pending)
        elif listener is None or (process.host, host) in self.walls:
            self.world.at(
                self.delay_s(host, process.host), self._fail, pending, "Connection refused", process=process
            )
        else:
            self.world.at(0.0, self._accept, process, pending, *listener, process=listener[0])

    def _accept(self, process: Process, pending: _Pending, owner: Process, server: Server) -> None:
        if pending.is_over or not process.alive:
            return
        near, far = End(self, process), End(self, owner)
        near.peer, far.peer = far, near
        self._ends += near, far
        server.accept(far)
        far._launch(_Accepted(pending, near), 0.0)
        near.receiver = _Dialling(pending, near)

    def _fail(self, pending: _Pending, reason: str) -> None:
        if not pending.is_over:
            pending.is_over = True
            pending.on_failed(reason)

    def forget(self, end: End) -> None:
        """An end has closed."""
        if not end.peer.is_open:
            self._ends = [other for other in self._ends if other is not end and other is not end.peer]

    async def refuses(self, address: str, timeout_s: float = 1.0) -> bool:
        """Stands in for `signalbox.links.reach.refuses`."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.probe(current_process(), address, lambda refused: answer.done() or answer.set_result(refused))
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            return False

    def probe(self, process: Process, address: str, tell: Callable[[bool], object]) -> None:
        """Tells `process` whether nothing listens at `address`; where nothing answers, it never does."""
        host = address.rpartition(":")[0]

        def knock() -> None:
            if not self.is_cut(host, process.host):
                refused = address not in self.listeners
                self.world.at(self.delay_s(host, process.host), tell, refused, process=process)

        if not self.is_cut(process.host, host):
            self.world.at(self.delay_s(process.host, host), knock)

    def reset(self, end: End) -> None:
        """Something came to an end that has closed, or might: the other side is told."""
        if end.peer.is_open and not self.is_cut(end.process.host, end.peer.process.host):
            end._launch(RESET, 0.0)


@dataclass
class _Accepted:
    pending: _Pending
    end: End


@dataclass
class _Dialling:
    """Holds the near end until the other side has answered."""

    pending: _Pending
    end: End

    def receive(self, frame: Any) -> None:
        assert isinstance(frame, _Accepted)
        if self.pending.is_over:
            self.end.close()
            return
        self.pending.is_over = True
        self.pending.on_open(self.end)

    def broken(self, reason: str) -> None:
        if not self.pending.is_over:
            self.pending.is_over = True
            self.pending.on_failed(reason)
