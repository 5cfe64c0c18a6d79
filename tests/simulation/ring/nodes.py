"""The services of a ring: each runs the `serve` of its service in a process that can end and start again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from frontend_svc.config import FrontendSettings
from frontend_svc.server import Frontend
from scheduler_svc import server as scheduler_server
from scheduler_svc.config import SchedulerSettings
from signalbox.protocol.enums import WorkerExit
from signalbox.v1 import to_worker_pb2
from tests.simulation.ahead import BlockOwners
from tests.simulation.block_rules import check_untouched, poison
from tests.simulation.ring.clock import Process
from tests.simulation.ring.handoff_watch import HandoffWatch
from tests.simulation.ring.model import AheadModel, Model, PipelineModel, Trouble
from tests.simulation.ring.pull_watch import PullWatch
from worker_svc import server as worker_server
from worker_svc.config import WorkerSettings
from worker_svc.core.worker_core import WorkerCore
from worker_svc.guardian import telling
from worker_svc.guardian.ending import Ending
from worker_svc.guardian.step_age import LOOK_S
from worker_svc.guardian.step_mark import StepMark
from worker_svc.guardian.step_watch import StepWatch
from worker_svc.guardian.telling import Ward
from worker_svc.relay import server as relay_server
from worker_svc.relay.config import RelaySettings
from worker_svc.runner.sim.model import SimDrafter

if TYPE_CHECKING:
    from tests.simulation.ring.ring import Ring


class Node:
    """A service on a host of its own, and the process that runs it now."""

    def __init__(self, ring: Ring, name: str) -> None:
        self.ring, self.world, self.setup, self.name = ring, ring.world, ring.setup, name
        self.process: Process | None = None
        self.num_starts = 0
        self.is_wanted = True
        """Whoever runs it starts it again when it has ended."""
        self.clock_skew_s = 0.0
        self.stop: asyncio.Event

    @property
    def is_running(self) -> bool:
        """Its process is there, frozen or not."""
        return self.process is not None and self.process.alive

    @property
    def instance(self) -> str:
        """Of the process that runs, for people."""
        return f"{self.name}#{self.num_starts}"

    def start(self) -> None:
        """A new process."""
        assert not self.is_running
        self.num_starts += 1
        process = self.process = Process(self.world, self.instance, self.name)
        process.node = self
        process.clock_skew_s = self.clock_skew_s
        self.ring.trace.note(self.name, f"starts as {self.instance}")
        self.world.at(0.0, self._begin, process=process)

    def _begin(self) -> None:
        assert self.process is not None
        self.stop = asyncio.Event()
        self.process.spawn(self._live(self.process, self.make()))

    async def _live(self, process: Process, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self.ended(process, f"failed with {type(error).__name__}: {error}", is_crash=True)
            return
        self.ended(process, "ended in good order")

    def make(self) -> Coroutine[Any, Any, None]:
        """What its process runs."""
        raise NotImplementedError

    def crash(self, reason: str) -> None:
        """The process dies by itself."""
        assert self.process is not None
        self.ended(self.process, reason, is_crash=True)

    def kill(self) -> None:
        """As SIGKILL."""
        if self.is_running:
            assert self.process is not None
            self.ended(self.process, "was killed", is_killed=True)

    def terminate(self) -> None:
        """As SIGTERM."""
        if self.is_running:
            assert self.process is not None
            self.ring.trace.note(self.name, "is told to stop")
            self.world.at(0.0, self.stop.set, process=self.process)

    def ended(
        self, process: Process, reason: str, *, is_crash: bool = False, is_killed: bool = False
    ) -> None:
        """The process is gone."""
        if not process.alive:
            return
        self.ring.trace.note(self.name, f"{process.name} {reason}")
        process.frozen = False
        process.end()
        self.ring.network.ended(process)
        self.on_end(process, reason, is_crash, is_killed)
        if self.is_wanted and not self.ring.is_over:
            self.world.at(self.world.rng.uniform(*self.setup.restart_s), self._restart)

    def on_end(self, process: Process, reason: str, is_crash: bool, is_killed: bool) -> None:
        """What else follows from that."""

    def _restart(self) -> None:
        if self.is_wanted and not self.is_running and not self.ring.is_over:
            self.start()


class SchedulerNode(Node):
    """A scheduler."""

    core: Any
    """`Scheduler` of the process that leads or led; unset while none has."""
    loop: Any

    @property
    def address(self) -> str:
        """host:port."""
        return f"{self.name}:7300"

    def make(self) -> Coroutine[Any, Any, None]:
        """See Node."""
        self.core = self.loop = None
        options = {"listen": self.address, "lease": "file:lease" if self.setup.has_lease else ""}
        options |= self.setup.scheduler
        known = {name: value for name, value in options.items() if name in SchedulerSettings.model_fields}
        settings = SchedulerSettings.model_construct(**known)
        return scheduler_server.serve(settings, self.stop)


class WorkerNode(Node):
    """A worker."""

    def __init__(self, ring: Ring, name: str, worker_id: str) -> None:
        super().__init__(ring, name)
        self.worker_id = worker_id
        self.trouble = Trouble()
        self.core: WorkerCore | None = None
        self.steps: Any = None
        self.outputs: Any = None
        self.runner: Model | AheadModel | PipelineModel
        self.drafter: SimDrafter | None = None
        self.worker_instance = ""
        self.mark = StepMark()
        self.started_at = 0.0
        self.watch: HandoffWatch
        self.pull_watch: PullWatch
        self.message = to_worker_pb2.SchedulerOutput()
        """The step that is taken now; empty: it is the worker's own."""

    def make(self) -> Coroutine[Any, Any, None]:
        """See Node."""
        setup = self.setup
        self.core = self.steps = self.outputs = None
        self.started_at = self.world.now
        self.trouble = Trouble(slowness=self.trouble.slowness)
        info, identities = setup.info, setup.identities
        if identities:
            number = int(self.worker_id.removeprefix("w")) + self.num_starts
            info = replace(info, identity=identities[number % len(identities)])
        of_one = AheadModel if setup.runs_ahead else Model
        self.runner = (PipelineModel if setup.num_lanes > 1 else of_one)(info, self.trouble)
        self.drafter = None
        if setup.max_draft_tokens:
            self.drafter = SimDrafter(setup.vocab_size, setup.acceptance, info.identity)
        options = {
            "scheduler": ",".join(self._schedulers),
            "listen": f"{self.name}:7310",
            "worker_id": self.worker_id,
            "runner": "sim",
            "num_slots": setup.num_slots,
            "max_num_batched_tokens": 1 << 20,
            "hand_off": True,
            "transfer_listen": "",
        }
        self.watch = HandoffWatch(self, self.ring.handoffs, self.instance)
        self.pull_watch = PullWatch(self, self.ring.handoffs.counts)
        self.worker_instance = f"{self.world.rng.getrandbits(128):032x}"
        self.ring.trace.name(self.worker_instance, self.instance)
        settings = WorkerSettings.model_construct(**(options | setup.worker))
        self.mark = StepMark()
        if self.ring.has_guards:
            self._guard()
        return worker_server.serve(settings, self.stop, self.worker_instance, self.mark)

    def _guard(self) -> None:
        """Its guardian ends the process when a step is over its limit."""
        process = self.process
        assert process is not None
        guardian = Process(self.world, f"guard of {process.name}", self.name)
        watch = StepWatch(self.mark, lambda: None, lambda: process.frozen)

        async def look() -> None:
            while process.alive:
                await asyncio.sleep(LOOK_S)
                if process.alive and (ending := watch.look(self.world.now)) is not None:
                    self.ring.num_hung += 1
                    is_crash = ending.exit is WorkerExit.CRASHED
                    self.ended(process, ending.reason, is_crash=is_crash, is_killed=not is_crash)
            guardian.end()

        self.world.at(0.0, lambda: guardian.spawn(look()), process=guardian)

    @property
    def _schedulers(self) -> list[str]:
        return ["r0:7305"] if self.setup.with_relay else self.setup.schedulers

    def has_taken_for(self, seconds: float, identity: bytes) -> bool:
        """It has run for so long under the identity of this key, and the scheduler that leads gives it requests."""
        if not self.is_running or self.core is None or self.world.now - self.started_at < seconds:
            return False
        leaders = [node.core for node in self.ring.schedulers if node.is_running and node.core is not None]
        known = [core.workers.get(self.worker_id) for core in leaders]
        return self.runner.info.identity.key == identity and any(each and each.takes_new for each in known)

    def applied(self, core: WorkerCore, changes: Any, step: Any) -> None:
        """A step was taken by the worker's core: what blocks held before they were given away is gone, and nobody
        touches what is copied beside the steps."""
        used = check_untouched(self.steps.copier.open, changes, step, self.runner)
        poison(self.runner, changes)  # type: ignore[arg-type]
        self.pull_watch.applied(changes, used)
        self.ring.masks.applied(core)
        self.watch.applied(self.message, changes, step)
        owners = self.runner.owners
        if isinstance(owners, BlockOwners):
            owners.follow(changes)
            owners.check(step.batch)

    def on_end(self, process: Process, reason: str, is_crash: bool, is_killed: bool) -> None:
        """Its guardian, if that lives, tells the schedulers."""
        instance, self.worker_instance = self.worker_instance, ""
        if not instance or self.world.rng.random() >= self.setup.guardians:
            return
        how = WorkerExit.CRASHED if is_crash else WorkerExit.KILLED if is_killed else WorkerExit.STOPPED
        guardian = Process(self.world, f"guardian of {process.name}", self.name)
        ward = Ward(self.worker_id, instance, tuple(self._schedulers), mark=self.mark)

        async def report() -> None:
            await telling._tell_all(ward, Ending(how, reason))
            guardian.end()
            self.ring.network.ended(guardian)

        self.world.at(0.0, lambda: guardian.spawn(report()), process=guardian)


class RelayNode(Node):
    """A relay between the workers and the scheduler."""

    def make(self) -> Coroutine[Any, Any, None]:
        """See Node."""
        settings = RelaySettings.model_construct(
            scheduler=",".join(self.setup.schedulers), listen="r0:7305", relay_id="relay", window_ms=1.0
        )
        return relay_server.serve(settings, self.stop)


class FrontendNode(Node):
    """A frontend, and the clients of its process."""

    def __init__(self, ring: Ring, name: str) -> None:
        super().__init__(ring, name)
        self.frontend: Frontend | None = None

    def make(self) -> Coroutine[Any, Any, None]:
        """See Node."""
        options = {
            "scheduler": ",".join(self.setup.schedulers),
            "http": f"{self.name}:8000",
            "grpc": f"{self.name}:7301",
            "name": self.name,
            "page": False,
            "vllm_faces": False,
            "drain_s": 2.0,
        }
        return self._serve(FrontendSettings.model_construct(**(options | self.setup.frontend)))

    async def _serve(self, settings: FrontendSettings) -> None:
        """As `frontend_svc.server.serve`."""
        frontend = self.frontend = Frontend(settings)
        try:
            await frontend.start()
            await frontend.run(self.stop)
        finally:
            await frontend.stop()
