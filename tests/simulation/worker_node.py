"""A worker process of the simulated ring around the real core, without threads and sockets."""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from signalbox.protocol.enums import FinishReason
from signalbox.protocol.parts.disk import DiskOrders
from signalbox.v1 import from_frontend_pb2, from_worker_pb2, shared_pb2, worker_pb2
from tests.simulation.ahead import AheadSimRunner, BlockOwners
from tests.simulation.block_rules import check_untouched, given_away, poison, poison_targets
from tests.simulation.disk import NodeDisk, check_orders
from tests.simulation.lanes import PipelineSimRunner
from tests.simulation.scheduler_node import SchedulerNode
from tests.simulation.session import MODEL, Setup
from tests.simulation.vectors import PoolingSimRunner
from tests.simulation.world import Link, World
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.outbound_log import OutboundLog
from worker_svc.core.parts.disk import DiskPart
from worker_svc.core.requests.request_state import SlotStatus
from worker_svc.core.step import Failure, FrontendOutput, NewRequest, RequestRef, SideCopies, StepDelta
from worker_svc.core.steps_in_flight import StepsInFlight
from worker_svc.core.worker_core import StepRefusedError, WorkerCore
from worker_svc.links import delta
from worker_svc.runner.sim.model import SimDrafter, SimRunner

if TYPE_CHECKING:
    from tests.simulation.frontend_node import FrontendNode


class WorkerNode:
    """A worker process; `restart` makes it a new one, without memory of its requests."""

    def __init__(
        self, world: World, scheduler: SchedulerNode, worker_id: str, info: RunnerInfo, setup: Setup
    ) -> None:
        self.disk: NodeDisk | None = None
        self.peers: Callable[[], list[WorkerNode]] = lambda: [self]
        self.world, self.scheduler, self.worker_id, self.info, self.setup = (
            world,
            scheduler,
            worker_id,
            info,
            setup,
        )
        self.incarnation = 0
        self.link: Link | None = None
        self.restart()

    def restart(self) -> None:
        self.alive = self.dirty = True
        self.incarnation += 1
        drafter = (
            SimDrafter(self.info.vocab_size, self.setup.acceptance) if self.info.max_draft_tokens else None
        )
        self.core = WorkerCore(self.info, self.setup.num_slots, drafter)
        self.core.parts.add(DiskPart(self._begin_disk))
        self.use(self._make_runner())
        self.inbox: deque[NewRequest | StepDelta] = deque()
        self.open_fences: list[SideCopies] = []
        self.ready: dict[int, RequestRef] = {}
        """By slot, whose grammar is compiled."""
        self.logs: dict[str, OutboundLog] = {}
        self.output_links: dict[str, tuple[Link, FrontendNode]] = {}
        self.link = None
        if self.disk is not None:
            self.disk = NodeDisk(self.disk.disk, self)
        self._connect()

    def _make_runner(self) -> SimRunner:
        if self.setup.num_lanes > 1:
            return PipelineSimRunner(self.info)
        return AheadSimRunner(self.info) if self.setup.runs_ahead else PoolingSimRunner(self.info)

    def use(self, runner: SimRunner) -> None:
        """Nothing has run yet."""
        self.runner, self.in_flight = (
            runner,
            StepsInFlight(self.core.table, runner, self._copy_aside),
        )
        self.owners: BlockOwners | None = None
        if isinstance(runner, AheadSimRunner | PipelineSimRunner):
            self.owners = runner.owners = BlockOwners(self.info)

    def kill(self) -> None:
        self.world.kill(self)

    def _connect(self) -> None:
        incarnation = self.incarnation
        self.world.at(self.world.rng.uniform(0.001, 0.2), lambda: self._hello(incarnation))

    def _hello(self, incarnation: int) -> None:
        if not self.alive or incarnation != self.incarnation or self.link is not None:
            return
        if not self.scheduler.alive or self.in_flight or self.inbox or self.open_fences:
            self._connect()
            return
        if self.disk is not None:
            self.disk.wait()
        self.core.rest()
        hello = from_worker_pb2.WorkerHello(
            worker_id=self.worker_id,
            worker_instance=f"{self.worker_id}/{self.incarnation}",
            model=shared_pb2.ModelEntry(
                model=MODEL, max_model_len=self.info.max_model_len, block_size=self.info.block_size
            ),
            num_slots=self.setup.num_slots,
            num_blocks=self.info.num_blocks,
            max_num_batched_tokens=1 << 20,
            max_draft_tokens=self.info.max_draft_tokens,
            **delta.host_blocks_of(self.info),
            kinds=[int(kind) for kind in self.info.kinds],  # type: ignore[misc]
            reuses_no_blocks=self.info.num_state_versions > 0,
            state_group=delta.build_state_group(self.info),
            groups=delta.build_groups(self.info),
            num_lanes=self.info.num_lanes,
        )
        if self.core.last_step_id:
            hello.snapshot.CopyFrom(delta.build_snapshot(self.core))
        self.link = Link(self.world, self, self.scheduler)
        self.link.send(self.scheduler, (self, from_worker_pb2.AttachWorkerRequest(hello=hello)))
        if self.disk is not None:
            self.disk.announce()
        for slot, ref in self.ready.items():
            if self._is_preparing(slot, ref):
                self._tell_grammar(slot, ref, is_ready=True)

    def receive(self, link: Link, message: Any) -> None:
        if isinstance(message, tuple):  # a frontend's stream
            node, request = message
            self._from_frontend(link, node, request)
        elif link is self.link:
            # Without its form: nothing is compiled here.
            self.inbox.extend(
                dataclasses.replace(delta.parse_new_request(new, self.info), form=None)
                for new in message.new_requests
            )
            self.inbox.extend(delta.parse_step(step) for step in message.steps)
            self._next()

    def _from_frontend(
        self, link: Link, node: FrontendNode, request: worker_pb2.StreamOutputsRequest
    ) -> None:
        log = self.logs.setdefault(node.instance, OutboundLog(1 << 30))
        log.acknowledge(request.acknowledged)
        if request.frontend_instance:
            self.output_links[node.instance] = (link, node)
            for _, batch in log.after(request.acknowledged):
                link.send(node, (self, self.incarnation, batch))

    def link_broken(self, link: Link) -> None:
        if link is self.link:
            self.link = None
            self._connect()
        for instance, (current, _) in list(self.output_links.items()):
            if current is link:
                del self.output_links[instance]

    def _next(self) -> None:
        while self.inbox and not self.in_flight.is_full:
            item = self.inbox[0]
            if isinstance(item, StepDelta) and self.in_flight and self.core.has_to_wait(item):
                return
            self.inbox.popleft()
            if isinstance(item, NewRequest):
                self._put_out(self.core.add(item))
                if from_frontend_pb2.RequestMeta.FromString(item.scheduler_meta).has_grammar:
                    self._compile(item.slot, item.ref)
                continue
            try:
                step = self.core.apply(item)
            except StepRefusedError:
                if self.link is not None:
                    self.link.break_()
                continue
            for start in item.started:
                self._check_started(start.slot)
            used = check_untouched(self.open_fences, item, step, self.runner)
            if self.disk is not None:
                check_orders(self.disk.open, item, used, given_away(self.runner, item))
            if item.side_copies is not None:
                self.open_fences.append(item.side_copies)
            poison(self.runner, item)
            if self.owners is not None:
                self.owners.follow(item)
            self.in_flight.start(step)
            if len(self.in_flight) == 1:
                self._expect_done()

    def _expect_done(self) -> None:
        done = functools.partial(self._done, self.incarnation)
        self.world.at(self.world.rng.uniform(0.002, 0.03), done)

    def _done(self, incarnation: int) -> None:
        if not self.alive or incarnation != self.incarnation:
            return
        self.dirty = True
        step, sampled, failed = self.in_flight.collect()
        report, outputs = self.core.commit(step, sampled, failed)
        self._put_out(outputs)
        if self.link is not None:
            message = from_worker_pb2.AttachWorkerRequest(outputs=[delta.build_report(report)])
            self.link.send(self.scheduler, (self, message))
        if self.in_flight:
            self._expect_done()
        self._next()

    def _put_out(self, outputs: list[FrontendOutput]) -> None:
        for output in outputs:
            log = self.logs.setdefault(output.frontend_instance, OutboundLog(1 << 30))
            batch = delta.build_outputs(output, log.next_sequence).SerializeToString()
            log.append(batch)
            if output.frontend_instance in self.output_links:
                link, node = self.output_links[output.frontend_instance]
                link.send(node, (self, self.incarnation, batch))

    def _begin_disk(self, orders: DiskOrders) -> None:
        assert self.disk is not None, "it has said nothing of a disk"
        self.disk.begin(orders)

    def tell(self, event: from_worker_pb2.WorkerEvent) -> None:
        if self.link is not None:
            self.link.send(self.scheduler, (self, from_worker_pb2.AttachWorkerRequest(events=[event])))

    # -- copies beside the steps: made at once, at any time --

    def _copy_aside(self, group: SideCopies) -> None:
        rng, incarnation = self.world.rng, self.incarnation
        fails = rng.random() < self.setup.copy_failures
        poison_targets(self.runner, group.copies)
        self.world.at(rng.uniform(0, self.setup.copy_s), lambda: self._copied(incarnation, group, fails))

    def _copied(self, incarnation: int, group: SideCopies, fails: bool) -> None:
        if not self.alive or incarnation != self.incarnation:
            return
        self.dirty = True
        self.open_fences.remove(group)
        if not fails:
            self.runner.copy_blocks(group.copies)
        if self.link is not None:
            failure = Failure("InternalError", "the copies failed") if fails else None
            event = delta.build_fence_ended(group.fence, failure)
            self.link.send(self.scheduler, (self, from_worker_pb2.AttachWorkerRequest(events=[event])))

    # -- grammars: nothing is compiled here, it only takes its time --

    def _compile(self, slot: int, ref: RequestRef) -> None:
        rng, incarnation = self.world.rng, self.incarnation
        fails = rng.random() < self.setup.grammar_failures
        self.world.at(
            rng.uniform(0, self.setup.compile_s), lambda: self._compiled(incarnation, slot, ref, fails)
        )

    def _compiled(self, incarnation: int, slot: int, ref: RequestRef, fails: bool) -> None:
        """Tells the scheduler even when the slot was given away meanwhile: it has to see that itself."""
        if not self.alive or incarnation != self.incarnation:
            return
        self.dirty = True
        if fails:
            failure = Failure("InvalidRequestError", "no such grammar", "structured_output")
            self._put_out(self.core.end_early(slot, ref, FinishReason.ERROR, failure))
        elif self._is_preparing(slot, ref):
            self.ready[slot] = ref
        self._tell_grammar(slot, ref, is_ready=not fails)

    def _check_started(self, slot: int) -> None:
        meta = from_frontend_pb2.RequestMeta.FromString(self.core.table.metas[slot])
        ref = self.core.table.refs[slot]
        assert not meta.has_grammar or self.ready.get(slot) == ref, "started before its grammar was ready"

    def _is_preparing(self, slot: int, ref: RequestRef) -> bool:
        return self.core.table.status[slot] == SlotStatus.PREPARING and self.core.table.refs[slot] == ref

    def _tell_grammar(self, slot: int, ref: RequestRef, is_ready: bool) -> None:
        if self.link is None:
            return
        event = from_worker_pb2.WorkerEvent()
        body = event.grammar_ready if is_ready else event.grammar_failed
        body.slot, body.ref.request_id, body.ref.attempt = slot, ref.request_id, ref.attempt
        self.link.send(self.scheduler, (self, from_worker_pb2.AttachWorkerRequest(events=[event])))
