"""A frontend process of the simulated ring, and what its clients do."""

from __future__ import annotations

from typing import Any

import numpy as np

from scheduler_svc.core.state.requests import notices
from signalbox.protocol.hash_chain import chain_hashes, root_hash
from signalbox.v1 import from_frontend_pb2, generation_pb2, shared_pb2, worker_pb2
from tests.simulation.scheduler_node import SchedulerNode
from tests.simulation.session import MODEL, Session, Setup
from tests.simulation.worker_node import WorkerNode
from tests.simulation.world import Link, World


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
        self.outbox: list[from_frontend_pb2.FrontendOperation] = []
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
            shared_pb2.RequestRef(request_id=s.request_id, attempt=s.attempt)
            for s in self.by_attempt.values()
            if not s.is_done and s.attempt not in unsent
        ]
        paused = [ref for ref in live if self.by_attempt[ref.attempt].paused]
        hello = from_frontend_pb2.FrontendHello(frontend_instance=self.instance, live=live, paused=paused)
        self.link.send(self.scheduler, (self, from_frontend_pb2.AttachFrontendRequest(hello=hello)))
        self._flush()

    def _send(self, operation: from_frontend_pb2.FrontendOperation) -> None:
        self.outbox.append(operation)
        self._flush()

    def _flush(self) -> None:
        if self.link is not None and self.outbox:
            message = from_frontend_pb2.AttachFrontendRequest(operations=self.outbox)
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
        meta = from_frontend_pb2.RequestMeta(
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
        ref = shared_pb2.RequestRef(request_id=session.request_id, attempt=session.attempt)
        submit = from_frontend_pb2.SubmitRequest(ref=ref, meta=meta, payload=payload.SerializeToString())
        self._send(from_frontend_pb2.FrontendOperation(submit=submit))

    def cancel(self, session: Session) -> None:
        """The client goes away."""
        if not session.is_done:
            session.ends.append("cancelled")
            ref = shared_pb2.RequestRef(request_id=session.request_id, attempt=session.attempt)
            self._send(from_frontend_pb2.FrontendOperation(cancel=from_frontend_pb2.CancelRequest(ref=ref)))

    def set_paused(self, session: Session, paused: bool) -> None:
        """The client reads too slowly, or goes on."""
        if session.is_done or session.paused == paused:
            return
        session.paused = paused
        ref = shared_pb2.RequestRef(request_id=session.request_id, attempt=session.attempt)
        operation = from_frontend_pb2.FrontendOperation()
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
                ref = shared_pb2.RequestRef(request_id=session.request_id, attempt=session.attempt)
                check = from_frontend_pb2.CheckRequest(
                    ref=ref, worker_id=worker.worker_id, worker_instance=instance
                )
                self._send(from_frontend_pb2.FrontendOperation(check=check))

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
            ref = shared_pb2.RequestRef(request_id=session.request_id, attempt=session.attempt)
            self._send(from_frontend_pb2.FrontendOperation(finish=from_frontend_pb2.FinishRequest(ref=ref)))
