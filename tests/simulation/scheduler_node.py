"""The scheduler process of the simulated ring around the real core, without threads and sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler_svc.core.recovery.frontend_desk import Question
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.request import RequestKey
from scheduler_svc.core.step.report import DivergenceError
from scheduler_svc.links.codec import delta
from scheduler_svc.links.codec.disk import DISK_EVENTS, take_disk_event
from signalbox.v1 import from_frontend_pb2, from_worker_pb2, to_worker_pb2
from tests.simulation.world import Link, World

if TYPE_CHECKING:
    from tests.simulation.frontend_node import FrontendNode
    from tests.simulation.worker_node import WorkerNode


class SchedulerNode:
    """A scheduler process; `restart` makes it a new one."""

    def __init__(self, world: World, config: SchedulerConfig) -> None:
        self.world, self.config, self.alive = world, config, False
        self.epoch = 0
        self.num_divergences = 0
        self.restart()
        world.at(0.5, self._tick)

    def restart(self) -> None:
        self.epoch += 1
        self.core = Scheduler(self.config, self.epoch, self.world.now)
        self.worker_links: dict[str, Link] = {}
        self.frontend_links: dict[str, Link] = {}
        self.nodes: dict[int, Any] = {}
        self.alive = self.dirty = True

    def _tick(self) -> None:
        if self.alive:
            self.dirty = True
            self.core.tick(self.world.now)
            self.pump()
        self.world.at(0.5, self._tick)

    def receive(self, link: Link, message: Any) -> None:
        node, payload = message
        self.nodes[id(link)] = node
        if isinstance(payload, from_worker_pb2.AttachWorkerRequest):
            self._from_worker(link, node, payload)
        else:
            self._from_frontend(link, node, payload)
        self.pump()

    def _from_worker(
        self, link: Link, node: WorkerNode, message: from_worker_pb2.AttachWorkerRequest
    ) -> None:
        worker_id = node.worker_id
        if message.HasField("hello"):
            info, snapshot = delta.parse_hello(message.hello)
            self.core.attach_worker(info, snapshot, self.world.now)
            self.worker_links[worker_id] = link
        if self.worker_links.get(worker_id) is not link:
            return
        for output in message.outputs:
            try:
                self.core.update(worker_id, delta.parse_report(output), self.world.now)
            except DivergenceError:
                self.num_divergences += 1
                link.break_()
                self.core.detach_worker(worker_id, self.world.now)
                del self.worker_links[worker_id]
                return
        for event in message.events:
            kind = event.WhichOneof("event")
            body = getattr(event, kind)
            if kind in DISK_EVENTS:
                take_disk_event(self.core.workers[worker_id], event)
                continue
            if kind == "fence_ended":
                self.core.fence_ended(worker_id, body.fence, failed=body.HasField("error"))
                continue
            take = self.core.grammar_ready if kind == "grammar_ready" else self.core.grammar_failed
            take(worker_id, body.slot, body.ref.request_id, body.ref.attempt)

    def _from_frontend(
        self, link: Link, node: FrontendNode, message: from_frontend_pb2.AttachFrontendRequest
    ) -> None:
        if message.HasField("hello"):
            live = [(ref.request_id, ref.attempt) for ref in message.hello.live]
            paused = [(ref.request_id, ref.attempt) for ref in message.hello.paused]
            self.core.attach_frontend(node.instance, live, paused, self.world.now)
            self.frontend_links[node.instance] = link
        if self.frontend_links.get(node.instance) is not link:
            return
        for operation in message.operations:
            self._operate(node.instance, operation)

    def _operate(self, instance: str, operation: from_frontend_pb2.FrontendOperation) -> None:
        kind = operation.WhichOneof("operation")
        assert kind is not None
        body = getattr(operation, kind)
        key, attempt = RequestKey(instance, body.ref.request_id), body.ref.attempt
        if kind == "submit":
            self.core.submit(delta.parse_submit(body, instance, int(self.world.now * 1000)), self.world.now)
        elif kind == "cancel":
            self.core.cancel(key, attempt)
        elif kind == "finish":
            self.core.finish(key, attempt)
        elif kind == "check":
            question = Question(key, attempt, body.worker_id, body.worker_instance)
            self.core.check(question, self.world.now)
        else:
            self.core.set_paused(key, attempt, kind == "pause")

    def link_broken(self, link: Link) -> None:
        for worker_id, current in list(self.worker_links.items()):
            if current is link:
                del self.worker_links[worker_id]
                self.core.detach_worker(worker_id, self.world.now)
        for instance, current in list(self.frontend_links.items()):
            if current is link:
                del self.frontend_links[instance]
                self.core.detach_frontend(instance, self.world.now)
        self.pump()

    def pump(self) -> None:
        """Sends every step that can be sent, and every notice."""
        for worker_id, link in self.worker_links.items():
            while (step := self.core.schedule(worker_id, self.world.now)) is not None:
                assert not set(step.paused_slots) & set(step.unpaused_slots), "a delta contradicts itself"
                worker = self.core.workers[worker_id]
                message = to_worker_pb2.AttachWorkerResponse(
                    new_requests=[delta.build_new_request(r, worker) for r in step.placed],
                    steps=[delta.build_step(step, self.core.epoch)],
                )
                link.send(self.nodes[id(link)], message)
        for notice in self.core.drain_notices():
            link_to = self.frontend_links.get(notice.key.frontend_instance)
            if link_to is not None:
                link_to.send(self.nodes[id(link_to)], notice)

    def kill(self) -> None:
        self.world.kill(self)
