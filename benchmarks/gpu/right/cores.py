"""A scheduler's core and a worker's core with a runner, joined by messages of the wire, in one thread."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.links.codec import delta as scheduler_delta
from signalbox.protocol.hash_chain import chain_hashes, root_hash
from signalbox.v1 import from_frontend_pb2, from_worker_pb2, generation_pb2, shared_pb2, to_worker_pb2
from worker_svc.core.batch import ModelRunner
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.core.step import FrontendOutput
from worker_svc.core.steps_in_flight import StepsInFlight
from worker_svc.core.worker_core import WorkerCore
from worker_svc.grammar.coordinator import FirstMask, GrammarCoordinator, GrammarResult
from worker_svc.grammar.preparation import GrammarPreparation, Prepared
from worker_svc.links import delta as worker_delta

FRONTEND, WORKER = "frontend", "worker"
MOST_STEPS = 5000
COMPILE_S = 60
"""Longest wait for a grammar."""


@dataclass
class Served:
    """What one request got."""

    prompt: list[int]
    output: list[int] = field(default_factory=list)
    num_ends: int = 0


@dataclass(frozen=True)
class RingSettings:
    """What is unlike in the rings of the cases."""

    depth: int = 2
    """Steps that are sent ahead."""
    chunk: int = 96
    """Most tokens of a step."""
    num_seqs: int = 8
    num_blocks: int | None = None
    """Blocks that the scheduler is told of; None: all."""
    num_drafts: int = 0


class CoreRing:
    """Serves requests as the services do, without their processes."""

    def __init__(
        self,
        runner: ModelRunner,
        settings: RingSettings,
        drafter: Drafter | None = None,
        grammars: GrammarPreparation | None = None,
    ) -> None:
        """grammars: for requests with a form; None: there are none."""
        info = runner.info
        self._runner, self._clients = runner, dict[int, Served]()
        self.core = WorkerCore(info, info.num_slots, drafter=drafter)
        config = SchedulerConfig(
            max_num_seqs=settings.num_seqs,
            max_num_batched_tokens=settings.chunk,
            max_inflight_steps=settings.depth,
            num_speculative_tokens=settings.num_drafts,
            just_in_time_steps=False,
            watermark_blocks_per_seq=0,
        )
        self.scheduler = Scheduler(config, 1, 0.0)
        self.scheduler.attach_worker(*scheduler_delta.parse_hello(self._hello(settings)), now=0.0)
        self.worker = self.scheduler.workers[WORKER]
        self._sent: deque[to_worker_pb2.SchedulerOutput] = deque()
        self._flights = StepsInFlight(
            self.core.table, runner, lambda group: runner.copies_aside(group.copies)()
        )
        self.num_ahead = 0
        """Steps that were launched while others were on their way."""
        self._prepared: queue.SimpleQueue[Prepared | FirstMask] = queue.SimpleQueue()
        self._grammars = GrammarCoordinator(self.core, grammars, self._prepared.put, self._tell)

    def _hello(self, settings: RingSettings) -> from_worker_pb2.WorkerHello:
        info = self._runner.info
        num_blocks = settings.num_blocks or info.num_blocks
        return from_worker_pb2.WorkerHello(
            worker_id=WORKER,
            worker_instance="1",
            model=shared_pb2.ModelEntry(
                model=info.model,
                max_model_len=min(info.max_model_len, num_blocks * info.block_size),
                block_size=info.block_size,
            ),
            kinds=[generation_pb2.REQUEST_KIND_GENERATE],
            num_slots=info.num_slots,
            num_blocks=num_blocks,
            max_num_batched_tokens=settings.chunk,
            max_draft_tokens=info.max_draft_tokens,
            **worker_delta.host_blocks_of(info),
            groups=worker_delta.build_groups(info),
            reuses_no_blocks=info.num_state_versions > 0,
            state_group=worker_delta.build_state_group(info),
            num_lanes=info.num_lanes,
        )

    def serve(
        self, prompts: Sequence[Sequence[int]], num_tokens: int, regex: str | None = None
    ) -> list[Served]:
        """Serves all prompts at a time, greedily. Outputs have `num_tokens` tokens, or with a `regex` that they have to
        match at most as many. RuntimeError where a step fails."""
        served = [self._submit(list(prompt), num_tokens, regex) for prompt in prompts]
        for _ in range(MOST_STEPS):
            if all(each.num_ends for each in served):
                self.core.table.check_integrity()
                self.scheduler.check_integrity()
                return served
            self._step()
        raise RuntimeError(f"the requests do not end within {MOST_STEPS} steps")

    def _submit(self, prompt: list[int], num_tokens: int, regex: str | None) -> Served:
        info, attempt = self._runner.info, len(self._clients) + 1
        raw, root = np.array(prompt, "<i4").tobytes(), root_hash(info.model)
        params = generation_pb2.SamplingParams(
            temperature=0.0, max_tokens=num_tokens, ignore_eos=regex is None
        )
        if regex is not None:
            params.structured_output.regex = regex
        request = from_frontend_pb2.SubmitRequest(
            ref=shared_pb2.RequestRef(request_id=f"r{attempt}", attempt=attempt),
            meta=from_frontend_pb2.RequestMeta(
                model=info.model,
                num_prompt_tokens=len(prompt),
                max_tokens=num_tokens,
                block_hashes=chain_hashes(root, raw, info.block_size),
                hash_block_size=info.block_size,
                root_hash=root,
                kind=generation_pb2.REQUEST_KIND_GENERATE,
                has_grammar=regex is not None,
            ),
            payload=generation_pb2.RequestPayload(token_ids=raw, sampling=params).SerializeToString(),
        )
        self.scheduler.submit(scheduler_delta.parse_submit(request, FRONTEND), 0.0)
        served = self._clients[attempt] = Served(prompt)
        return served

    def _step(self) -> None:
        """Sends what can be sent, starts what can be started, and takes the oldest step's report."""
        while (decision := self.scheduler.schedule(WORKER, 0.0)) is not None:
            for request in decision.placed:
                self._place(scheduler_delta.build_new_request(request, self.worker))
            self._sent.append(scheduler_delta.build_step(decision, self.scheduler.epoch))
        while self._sent and self._takes_another():
            self._start(self._sent.popleft())
        step, sampled, failed = self._flights.collect()
        if failed:
            raise RuntimeError(f"a step failed: {next(iter(failed.values()))}")
        if len(sampled.bad_rows):
            raise RuntimeError(f"rows {sampled.bad_rows.tolist()} of a step are not finite")
        report, outputs = self.core.commit(step, sampled, failed)
        self.scheduler.update(WORKER, scheduler_delta.parse_report(worker_delta.build_report(report)), 0.0)
        if step.side_copies is not None:
            self.scheduler.fence_ended(WORKER, step.side_copies.fence, failed=False)
        self._put_out(outputs)

    def _takes_another(self) -> bool:
        flights = self._flights
        return not flights.is_full and not (
            flights and self.core.has_to_wait(worker_delta.parse_step(self._sent[0]))
        )

    def _start(self, message: to_worker_pb2.SchedulerOutput) -> None:
        delta = worker_delta.parse_step(message)
        step = self.core.apply(delta)
        self._grammars.forget(delta.finished_slots)
        self.num_ahead += bool(self._flights)
        self._flights.start(step)

    def _place(self, message: to_worker_pb2.NewRequestData) -> None:
        request = worker_delta.parse_new_request(message, self._runner.info)
        self._put_out(self.core.add(request))
        self._grammars.add(request)
        if request.form is not None:
            prepared = self._prepared.get(timeout=COMPILE_S)
            assert isinstance(prepared, Prepared), "masks are made when they are begun"
            self._grammars.take(prepared)

    def _tell(self, result: GrammarResult) -> None:
        event = worker_delta.build_grammar_event(result)
        take: Callable[..., object]
        if event.WhichOneof("event") == "grammar_ready":
            take, body = self.scheduler.grammar_ready, event.grammar_ready.ref
            take(WORKER, event.grammar_ready.slot, body.request_id, body.attempt)
        else:
            take, body = self.scheduler.grammar_failed, event.grammar_failed.ref
            take(WORKER, event.grammar_failed.slot, body.request_id, body.attempt)
        self._put_out(result.outputs)

    def _put_out(self, outputs: list[FrontendOutput]) -> None:
        for output in outputs:
            counts = [1] * len(output.attempts) if output.counts is None else output.counts.tolist()
            tokens = iter(output.token_ids.tolist())
            for attempt, count in zip(output.attempts.tolist(), counts, strict=True):
                self._clients[attempt].output += [next(tokens) for _ in range(count)]
            for attempt, _, _, failure in output.finished:
                if failure is not None:
                    raise RuntimeError(f"request {attempt} failed: {failure}")
                self._clients[attempt].num_ends += 1
