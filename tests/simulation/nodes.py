"""The three processes of the ring around the real cores, without threads and sockets."""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from typing import Any

import numpy as np

from scheduler_svc import delta as scheduler_delta
from scheduler_svc.core import notices
from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.request import RequestKey
from scheduler_svc.core.scheduler import DivergenceError, Scheduler
from signalbox.hash_chain import chain_hashes, root_hash
from signalbox.v1 import generation_pb2, scheduler_pb2, worker_pb2
from tests.simulation.ahead import AheadSimRunner, BlockOwners
from tests.simulation.session import MODEL, Session, Setup
from tests.simulation.vectors import PoolingSimRunner
from tests.simulation.world import Link, World
from worker_svc import delta as worker_delta
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.outbound_log import OutboundLog
from worker_svc.core.request_state import SlotStatus
from worker_svc.core.running_step import RunningStep
from worker_svc.core.step import (
    Failure,
    FinishReason,
    FrontendOutput,
    NewRequest,
    RequestRef,
    SideCopies,
    StepDelta,
)
from worker_svc.core.steps_in_flight import StepsInFlight
from worker_svc.core.worker_core import StepRefusedError, WorkerCore
from worker_svc.runner.sim import SimDrafter, SimRunner


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
        if isinstance(payload, scheduler_pb2.AttachWorkerRequest):
            self._from_worker(link, node, payload)
        else:
            self._from_frontend(link, node, payload)
        self.pump()

    def _from_worker(self, link: Link, node: WorkerNode, message: scheduler_pb2.AttachWorkerRequest) -> None:
        worker_id = node.worker_id
        if message.HasField("hello"):
            info, snapshot = scheduler_delta.parse_hello(message.hello)
            self.core.attach_worker(info, snapshot, self.world.now)
            self.worker_links[worker_id] = link
        if self.worker_links.get(worker_id) is not link:
            return
        for output in message.outputs:
            try:
                self.core.update(worker_id, scheduler_delta.parse_report(output), self.world.now)
            except DivergenceError:
                self.num_divergences += 1
                link.break_()
                self.core.detach_worker(worker_id, self.world.now)
                del self.worker_links[worker_id]
                return
        for event in message.events:
            kind = event.WhichOneof("event")
            body = getattr(event, kind)
            if kind == "fence_ended":
                self.core.fence_ended(worker_id, body.fence, failed=body.HasField("error"))
                continue
            take = self.core.grammar_ready if kind == "grammar_ready" else self.core.grammar_failed
            take(worker_id, body.slot, body.ref.request_id, body.ref.attempt)

    def _from_frontend(
        self, link: Link, node: FrontendNode, message: scheduler_pb2.AttachFrontendRequest
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

    def _operate(self, instance: str, operation: scheduler_pb2.FrontendOperation) -> None:
        kind = operation.WhichOneof("operation")
        assert kind is not None
        body = getattr(operation, kind)
        key, attempt = RequestKey(instance, body.ref.request_id), body.ref.attempt
        if kind == "submit":
            self.core.submit(scheduler_delta.parse_submit(body, instance), self.world.now)
        elif kind == "cancel":
            self.core.cancel(key, attempt)
        elif kind == "finish":
            self.core.finish(key, attempt)
        elif kind == "check":
            self.core.check(key, attempt, body.worker_id, body.worker_instance, self.world.now)
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
                message = scheduler_pb2.AttachWorkerResponse(
                    new_requests=[scheduler_delta.build_new_request(r, worker) for r in step.placed],
                    steps=[scheduler_delta.build_step(step, self.core.epoch)],
                )
                link.send(self.nodes[id(link)], message)
        for notice in self.core.drain_notices():
            link_to = self.frontend_links.get(notice.key.frontend_instance)
            if link_to is not None:
                link_to.send(self.nodes[id(link_to)], notice)

    def kill(self) -> None:
        self.world.kill(self)


class WorkerNode:
    """A worker process; `restart` makes it a new one, without memory of its requests."""

    def __init__(
        self, world: World, scheduler: SchedulerNode, worker_id: str, info: RunnerInfo, setup: Setup
    ) -> None:
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
        self.use(AheadSimRunner(self.info) if self.setup.runs_ahead else PoolingSimRunner(self.info))
        self.inbox: deque[NewRequest | StepDelta] = deque()
        self.open_fences: list[SideCopies] = []
        self.ready: dict[int, RequestRef] = {}
        """By slot, whose grammar is compiled."""
        self.logs: dict[str, OutboundLog] = {}
        self.output_links: dict[str, tuple[Link, FrontendNode]] = {}
        self.link = None
        self._connect()

    def use(self, runner: SimRunner) -> None:
        """Nothing has run yet."""
        self.runner, self.in_flight = runner, StepsInFlight(self.core.table, runner, self._copy_aside)
        self.owners: BlockOwners | None = None
        if isinstance(runner, AheadSimRunner):
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
        self.core.rest()
        hello = scheduler_pb2.WorkerHello(
            worker_id=self.worker_id,
            worker_instance=f"{self.worker_id}/{self.incarnation}",
            model=scheduler_pb2.ModelEntry(
                model=MODEL, max_model_len=self.info.max_model_len, block_size=self.info.block_size
            ),
            num_slots=self.setup.num_slots,
            num_blocks=self.info.num_blocks,
            max_num_batched_tokens=1 << 20,
            max_draft_tokens=self.info.max_draft_tokens,
            num_host_blocks=self.info.num_host_blocks,
            kinds=[int(kind) for kind in self.info.kinds],  # type: ignore[misc]
        )
        if self.core.last_step_id:
            hello.snapshot.CopyFrom(
                worker_delta.build_snapshot(
                    self.core.table, self.core.held_slots(), self.core.scheduler_epoch, self.core.last_step_id
                )
            )
        self.link = Link(self.world, self, self.scheduler)
        self.link.send(self.scheduler, (self, scheduler_pb2.AttachWorkerRequest(hello=hello)))
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
                dataclasses.replace(worker_delta.parse_new_request(new, self.info), form=None)
                for new in message.new_requests
            )
            self.inbox.extend(worker_delta.parse_step(step) for step in message.steps)
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
                self.core.add(item)
                if scheduler_pb2.RequestMeta.FromString(item.scheduler_meta).has_grammar:
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
            check_untouched(self.open_fences, item, step, self.info.block_size)
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
            message = scheduler_pb2.AttachWorkerRequest(outputs=[worker_delta.build_report(report)])
            self.link.send(self.scheduler, (self, message))
        if self.in_flight:
            self._expect_done()
        self._next()

    def _put_out(self, outputs: list[FrontendOutput]) -> None:
        for output in outputs:
            log = self.logs.setdefault(output.frontend_instance, OutboundLog(1 << 30))
            batch = worker_delta.build_outputs(output, log.next_sequence, 0).SerializeToString()
            log.append(batch)
            if output.frontend_instance in self.output_links:
                link, node = self.output_links[output.frontend_instance]
                link.send(node, (self, self.incarnation, batch))

    # -- copies beside the steps: made at once, at any time --

    def _copy_aside(self, group: SideCopies) -> None:
        rng, incarnation = self.world.rng, self.incarnation
        fails = rng.random() < self.setup.copy_failures
        sources = {copy.source for copy in group.copies if not copy.source_is_host}
        targets = [copy.target for copy in group.copies if not copy.target_is_host]
        saved = [copy.target for copy in group.copies if copy.target_is_host]
        self.runner.poison([block for block in targets if block not in sources], saved)
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
            event = worker_delta.build_fence_ended(group.fence, failure)
            self.link.send(self.scheduler, (self, scheduler_pb2.AttachWorkerRequest(events=[event])))

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
        meta = scheduler_pb2.RequestMeta.FromString(self.core.table.metas[slot])
        ref = self.core.table.refs[slot]
        assert not meta.has_grammar or self.ready.get(slot) == ref, "started before its grammar was ready"

    def _is_preparing(self, slot: int, ref: RequestRef) -> bool:
        return self.core.table.status[slot] == SlotStatus.PREPARING and self.core.table.refs[slot] == ref

    def _tell_grammar(self, slot: int, ref: RequestRef, is_ready: bool) -> None:
        if self.link is None:
            return
        event = scheduler_pb2.WorkerEvent()
        body = event.grammar_ready if is_ready else event.grammar_failed
        body.slot, body.ref.request_id, body.ref.attempt = slot, ref.request_id, ref.attempt
        self.link.send(self.scheduler, (self, scheduler_pb2.AttachWorkerRequest(events=[event])))


def check_untouched(fences: list[SideCopies], delta: StepDelta, step: RunningStep, block_size: int) -> None:
    """Asserts that nothing of a step reads or writes what is copied beside it."""
    copies = [copy for group in fences for copy in group.copies]
    fenced = {copy.source for copy in copies if not copy.source_is_host}
    fenced |= {copy.target for copy in copies if not copy.target_is_host}
    host_targets = {copy.target for copy in copies if copy.target_is_host}
    host = host_targets | {copy.source for copy in copies if copy.source_is_host}
    used = set(delta.grant_blocks.tolist())
    for start in (*delta.started, *delta.resumed):
        used |= set(start.blocks.tolist())
    batch = step.batch
    for row, length in enumerate(batch.seq_lens.tolist()):
        used |= set(batch.block_tables[row, : -(-length // block_size)].tolist())
    others = [*delta.copies, *(delta.side_copies.copies if delta.side_copies else [])]
    used |= {copy.source for copy in others if not copy.source_is_host}
    used |= {copy.target for copy in others if not copy.target_is_host}
    assert not used & fenced, f"step {delta.step_id} touches fenced blocks {sorted(used & fenced)}"
    assert not {copy.target for copy in others if copy.target_is_host} & host, "a host block is overwritten"
    assert not {copy.source for copy in others if copy.source_is_host} & host_targets, "a host block is torn"


def poison(runner: SimRunner, delta: StepDelta) -> None:
    """Overwrites what blocks held before they were given away: nobody may read anything that was not written since."""
    fresh = delta.grant_blocks.tolist()
    for start in (*delta.started, *delta.resumed):
        fresh += start.blocks[start.start // runner.info.block_size :].tolist()
    copied = {copy.source for copy in delta.copies if not copy.source_is_host}
    runner.poison([block for block in fresh if block not in copied])


class FrontendNode:
    """A frontend process with its clients."""

    def __init__(
        self, world: World, scheduler: SchedulerNode, workers: list[WorkerNode], setup: Setup
    ) -> None:
        self.world, self.scheduler, self.workers, self.setup = world, scheduler, workers, setup
        self.instance = "frontend"
        self.alive = self.dirty = True
        self.link: Link | None = None
        self.sessions: list[Session] = []
        self.by_attempt: dict[int, Session] = {}
        self.last_attempt = 0
        self.outbox: list[scheduler_pb2.FrontendOperation] = []
        self.output_links: dict[str, Link] = {}
        self.seen: dict[str, tuple[int, int]] = {}
        """By worker id: its incarnation and the newest batch."""
        self._connect()
        for worker in workers:
            self._open_outputs(worker)

    # -- to the scheduler --

    def _connect(self) -> None:
        self.world.at(self.world.rng.uniform(0.001, 0.2), self._hello)

    def _hello(self) -> None:
        if self.link is not None:
            return
        if not self.scheduler.alive:
            self._connect()
            return
        self.link = Link(self.world, self, self.scheduler)
        unsent = {op.submit.ref.attempt for op in self.outbox if op.WhichOneof("operation") == "submit"}
        live = [
            scheduler_pb2.RequestRef(request_id=s.request_id, attempt=s.attempt)
            for s in self.by_attempt.values()
            if not s.is_done and s.attempt not in unsent
        ]
        paused = [ref for ref in live if self.by_attempt[ref.attempt].paused]
        hello = scheduler_pb2.FrontendHello(frontend_instance=self.instance, live=live, paused=paused)
        self.link.send(self.scheduler, (self, scheduler_pb2.AttachFrontendRequest(hello=hello)))
        self._flush()

    def _send(self, operation: scheduler_pb2.FrontendOperation) -> None:
        self.outbox.append(operation)
        self._flush()

    def _flush(self) -> None:
        if self.link is not None and self.outbox:
            message = scheduler_pb2.AttachFrontendRequest(operations=self.outbox)
            self.link.send(self.scheduler, (self, message))
            self.outbox = []

    def link_broken(self, link: Link) -> None:
        if link is self.link:
            self.link = None
            self._connect()
        for worker in self.workers:
            if self.output_links.get(worker.worker_id) is link:
                del self.output_links[worker.worker_id]
                self._open_outputs(worker)

    # -- requests --

    def submit(self, session: Session) -> None:
        """Submits a new request, or a lost one again with what it has put out so far."""
        if session.attempt == 0:
            self.sessions.append(session)
        self.last_attempt += 1
        self.by_attempt.pop(session.attempt, None)
        session.attempt = self.last_attempt
        session.num_attempts += 1
        self.by_attempt[session.attempt] = session
        known = session.prompt + session.output
        raw = np.array(known, "<i4").tobytes()
        root = root_hash(MODEL)
        payload = generation_pb2.RequestPayload(
            token_ids=raw,
            num_prior_output_tokens=len(session.output),
            sampling=generation_pb2.SamplingParams(
                max_tokens=session.max_tokens, stop_token_ids=session.stop_token_ids, seed=1
            ),
        )
        if session.never_repeats:
            payload.sampling.repetition_penalty = 2.0
        if session.pooling is not None:
            payload.pooling.mode = int(session.pooling)  # type: ignore[assignment]
            payload.pooling.raw = True
        if session.has_grammar:
            payload.sampling.structured_output.regex = ".*"
        meta = scheduler_pb2.RequestMeta(
            model=MODEL,
            num_prompt_tokens=len(session.prompt),
            num_prior_output_tokens=len(session.output),
            max_tokens=session.max_tokens,
            block_hashes=chain_hashes(root, raw, self.setup.block_size),
            hash_block_size=self.setup.block_size,
            root_hash=root,
            kind=generation_pb2.REQUEST_KIND_GENERATE
            if session.pooling is None
            else generation_pb2.REQUEST_KIND_POOLING,
            has_grammar=session.has_grammar,
            priority=session.priority,
            tenant=session.tenant,
            arrival_ms=int(self.world.now * 1000),
        )
        ref = scheduler_pb2.RequestRef(request_id=session.request_id, attempt=session.attempt)
        submit = scheduler_pb2.SubmitRequest(ref=ref, meta=meta, payload=payload.SerializeToString())
        self._send(scheduler_pb2.FrontendOperation(submit=submit))

    def cancel(self, session: Session) -> None:
        """The client goes away."""
        if not session.is_done:
            session.ends.append("cancelled")
            ref = scheduler_pb2.RequestRef(request_id=session.request_id, attempt=session.attempt)
            self._send(scheduler_pb2.FrontendOperation(cancel=scheduler_pb2.CancelRequest(ref=ref)))

    def set_paused(self, session: Session, paused: bool) -> None:
        """The client reads too slowly, or goes on."""
        if session.is_done or session.paused == paused:
            return
        session.paused = paused
        ref = scheduler_pb2.RequestRef(request_id=session.request_id, attempt=session.attempt)
        operation = scheduler_pb2.FrontendOperation()
        (operation.pause if paused else operation.unpause).ref.CopyFrom(ref)
        self._send(operation)

    # -- what comes back --

    def receive(self, link: Link, message: Any) -> None:
        if isinstance(message, tuple):
            self._outputs(link, *message)
            return
        session = self.by_attempt.get(message.attempt)
        if session is None or session.is_done:
            return
        if isinstance(message, notices.Lost):
            self.submit(session)
        elif isinstance(message, notices.Rejected):
            session.ends.append(f"rejected: {message.message}")

    def _open_outputs(self, worker: WorkerNode) -> None:
        self.world.at(self.world.rng.uniform(0.001, 0.2), lambda: self._open(worker))

    def _open(self, worker: WorkerNode) -> None:
        if worker.worker_id in self.output_links:
            return
        if not worker.alive:
            self._open_outputs(worker)
            return
        incarnation, sequence = self.seen.get(worker.worker_id, (0, 0))
        if incarnation != worker.incarnation:
            sequence = 0
            self.seen[worker.worker_id] = (worker.incarnation, 0)
            self._check_all(worker)
        link = self.output_links[worker.worker_id] = Link(self.world, self, worker)
        link.send(
            worker,
            (self, worker_pb2.StreamOutputsRequest(frontend_instance=self.instance, acknowledged=sequence)),
        )

    def _check_all(self, worker: WorkerNode) -> None:
        """Another process stands in the worker's place: some end may have been lost with the old one."""
        instance = f"{worker.worker_id}/{worker.incarnation}"
        for session in self.by_attempt.values():
            if not session.is_done:
                ref = scheduler_pb2.RequestRef(request_id=session.request_id, attempt=session.attempt)
                check = scheduler_pb2.CheckRequest(
                    ref=ref, worker_id=worker.worker_id, worker_instance=instance
                )
                self._send(scheduler_pb2.FrontendOperation(check=check))

    def _outputs(self, link: Link, worker: WorkerNode, incarnation: int, raw: bytes) -> None:
        batch = worker_pb2.OutputBatch.FromString(raw)
        if self.seen[worker.worker_id] >= (incarnation, batch.sequence):
            return
        expected = self.seen[worker.worker_id][1] + 1
        assert batch.sequence == expected, f"batch {batch.sequence}, expected {expected}"
        self.seen[worker.worker_id] = (incarnation, batch.sequence)
        attempts = np.frombuffer(batch.attempts, "<u4").tolist()
        starts = np.frombuffer(batch.starts, "<u4").tolist()
        counts = np.frombuffer(batch.counts, "<u1").tolist() or [1] * len(attempts)
        tokens, offset = np.frombuffer(batch.token_ids, "<i4").tolist(), 0
        assert len(tokens) == sum(counts)
        for attempt, start, count in zip(attempts, starts, counts, strict=True):
            self._tokens(attempt, start, tokens[offset : offset + count])
            offset += count
        for vector in batch.vectors:
            session = self.by_attempt.get(vector.attempt)
            if session is not None and not session.is_done:
                assert session.vector is None, "two vectors"
                session.vector = float(np.frombuffer(vector.values, "<f4")[0])
        for finished in batch.finished:
            session = self.by_attempt.get(finished.attempt)
            if session is not None and not session.is_done:
                assert len(session.output) == finished.num_output_tokens, "the final count is wrong"
                session.ends.append(generation_pb2.FinishReason.Name(finished.reason))
        if self.world.rng.random() < 0.5:
            link.send(worker, (self, worker_pb2.StreamOutputsRequest(acknowledged=batch.sequence)))

    def _tokens(self, attempt: int, start: int, tokens: list[int]) -> None:
        session = self.by_attempt.get(attempt)
        if session is None or session.is_done:
            return
        assert start == len(session.output), f"tokens from {start}, have {len(session.output)}"
        session.output += tokens
        if session.stop_after is not None and len(session.output) >= session.stop_after:
            session.ends.append("stop string")
            session.output = session.output[: session.stop_after]
            ref = scheduler_pb2.RequestRef(request_id=session.request_id, attempt=session.attempt)
            finish = scheduler_pb2.FinishRequest(
                ref=ref, reason=generation_pb2.FINISH_REASON_STOP, num_output_tokens=session.stop_after
            )
            self._send(scheduler_pb2.FrontendOperation(finish=finish))
