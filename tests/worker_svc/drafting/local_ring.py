"""A scheduler's and a worker's core with a runner of a real model, joined by messages of the wire, in one thread."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.links.codec import delta as scheduler_delta
from signalbox.protocol.hash_chain import chain_hashes, root_hash
from signalbox.v1 import from_frontend_pb2, from_worker_pb2, generation_pb2, shared_pb2, to_worker_pb2
from worker_svc.core.batch import ModelRunner
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.core.step import FrontendOutput, StepDelta
from worker_svc.core.steps_in_flight import StepsInFlight
from worker_svc.core.worker_core import WorkerCore
from worker_svc.grammar.coordinator import FirstMask, GrammarCoordinator, GrammarResult
from worker_svc.grammar.preparation import GrammarPreparation, Prepared
from worker_svc.links import delta as worker_delta
from worker_svc.runner.attention.kv_cache import KVCache
from worker_svc.steps.mask_pool import MaskPool

GREEDY = generation_pb2.SamplingParams(temperature=0.0)
FRONTEND, WORKER = "frontend", "worker"
MOST_STEPS = 2000
COMPILE_S = 100


def fill_with_garbage(cache: KVCache) -> None:
    """A read of what was not written since shows."""
    for layer in (*cache.layers, *cache.host_layers):
        layer.keys.fill_(1e4)
        layer.values.fill_(1e4)


@dataclass
class Client:
    """What one request got."""

    prompt: list[int]
    output: list[int] = field(default_factory=list)
    """What it had before included."""
    ends: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    prompt_logprobs: list[float] = field(default_factory=list)
    """From the second token on."""
    vector: list[float] = field(default_factory=list)
    num_accepted: int = 0
    """Drafts that became output."""
    preempted_at: list[int] = field(default_factory=list)
    """How many output tokens it had whenever it lost its blocks."""


class LocalRing:
    """`depth` steps are always in flight: the worker runs the oldest when the scheduler sends no more."""

    def __init__(
        self,
        runner: ModelRunner,
        drafter: Drafter | None,
        *,
        depth: int = 1,
        num_drafts: int = 0,
        num_seqs: int = 8,
        step_seconds: float | None = None,
        grammars: GrammarPreparation | None = None,
        side_copy_blocks: int = 0,
    ) -> None:
        """step_seconds: how long each step is said to have taken, whatever is in it; None: nobody says.
        grammars: for requests with a form, each of which is waited for before the next step is made."""
        info = runner.info
        self._runner, self._step_seconds = runner, step_seconds
        self.core = WorkerCore(info, num_slots=2 * num_seqs, drafter=drafter)
        config = SchedulerConfig(
            max_num_seqs=num_seqs,
            max_num_batched_tokens=16 * num_seqs,
            max_inflight_steps=depth,
            num_speculative_tokens=num_drafts,
            just_in_time_steps=False,
            side_copy_blocks=side_copy_blocks,
        )
        self.scheduler = Scheduler(config, 1, 0.0)
        hello = from_worker_pb2.WorkerHello(
            worker_id=WORKER,
            worker_instance="1",
            model=shared_pb2.ModelEntry(
                model=info.model, max_model_len=info.max_model_len, block_size=info.block_size
            ),
            kinds=[generation_pb2.REQUEST_KIND_GENERATE, generation_pb2.REQUEST_KIND_POOLING],
            num_slots=2 * num_seqs,
            num_blocks=info.num_blocks,
            max_num_batched_tokens=1024,
            max_draft_tokens=info.max_draft_tokens,
            **worker_delta.host_blocks_of(info),
            groups=worker_delta.build_groups(info),
            reuses_no_blocks=info.num_state_versions > 0,
            state_group=worker_delta.build_state_group(info),
            num_lanes=info.num_lanes,
        )
        self.scheduler.attach_worker(*scheduler_delta.parse_hello(hello), now=0.0)
        self.worker = self.scheduler.workers[WORKER]
        self._clients: dict[int, Client] = {}
        self._in_flight: deque[to_worker_pb2.SchedulerOutput] = deque()
        self._flights = StepsInFlight(
            self.core.table, runner, lambda group: runner.copies_aside(group.copies)()
        )
        self.num_beside = 0
        """Steps that were taken while others were on their way."""
        self._prepared: queue.SimpleQueue[Prepared | FirstMask] = queue.SimpleQueue()
        self._desk = GrammarCoordinator(self.core, grammars, self._prepared.put, self._tell)
        self.core.make_masks_with(MaskPool())

    def submit(
        self,
        prompt: list[int],
        max_tokens: int,
        sampling: generation_pb2.SamplingParams = GREEDY,
        bad_words: Sequence[Sequence[int]] = (),
        prior: Sequence[int] = (),
        budget: generation_pb2.ReasoningBudget | None = None,
        pooling: generation_pb2.PoolingParams | None = None,
    ) -> Client:
        """A client sends `prompt`; `prior` is the output that it got elsewhere. An output without a form goes on to
        `max_tokens`. With `pooling` it wants a vector, and no output."""
        info, attempt = self._runner.info, len(self._clients) + 1
        raw, root = np.array([*prompt, *prior], "<i4").tobytes(), root_hash(info.model)
        has_form = sampling.HasField("structured_output")
        params = generation_pb2.SamplingParams()
        params.CopyFrom(sampling)
        params.max_tokens, params.ignore_eos = max_tokens, not has_form
        request = from_frontend_pb2.SubmitRequest(
            ref=shared_pb2.RequestRef(request_id=f"r{attempt}", attempt=attempt),
            meta=from_frontend_pb2.RequestMeta(
                model=info.model,
                num_prompt_tokens=len(prompt),
                num_prior_output_tokens=len(prior),
                max_tokens=max_tokens,
                block_hashes=chain_hashes(root, raw, info.block_size),
                hash_block_size=info.block_size,
                root_hash=root,
                kind=generation_pb2.REQUEST_KIND_POOLING if pooling else generation_pb2.REQUEST_KIND_GENERATE,
                wants_prompt_logprobs=sampling.HasField("prompt_logprobs"),
                has_grammar=has_form,
            ),
            payload=generation_pb2.RequestPayload(
                token_ids=raw,
                num_prior_output_tokens=len(prior),
                sampling=params,
                bad_token_sequences=[generation_pb2.TokenSequence(token_ids=word) for word in bad_words],
                reasoning_budget=budget,
                pooling=pooling,
            ).SerializeToString(),
        )
        self.scheduler.submit(scheduler_delta.parse_submit(request, FRONTEND), 0.0)
        client = self._clients[attempt] = Client(prompt, list(prior))
        return client

    def run(self) -> None:
        """Until every request has ended."""
        for _ in range(MOST_STEPS):
            if all(client.ends for client in self._clients.values()):
                return
            self.step()
        raise AssertionError("the requests do not end")

    def step(self) -> None:
        """Sends what can be sent, and runs the oldest step."""
        while not self._prepared.empty():
            self._take_prepared()
        while (decision := self.scheduler.schedule(WORKER, 0.0)) is not None:
            for request in decision.placed:
                self._place(scheduler_delta.build_new_request(request, self.worker))
            self._in_flight.append(scheduler_delta.build_step(decision, self.scheduler.epoch))
        while self._in_flight and self._takes_another():
            self._take(worker_delta.parse_step(self._in_flight.popleft()))
        if not self._flights:  # all who are left wait for their first masks
            self.core.wait_for_masks()
            return
        step, sampled, failed = self._flights.collect()
        assert not failed
        report, outputs = self.core.commit(step, sampled, failed)
        if self._step_seconds is not None and self.core.drafting is not None:
            self.core.drafting.take_duration(step, self._step_seconds)
        self.scheduler.update(WORKER, scheduler_delta.parse_report(worker_delta.build_report(report)), 0.0)
        if step.side_copies is not None:
            self.scheduler.fence_ended(WORKER, step.side_copies.fence, failed=False)
        self.scheduler.check_integrity()
        self.core.table.check_integrity()
        self._put_out(outputs)

    def _takes_another(self) -> bool:
        """Where there are lanes, steps are on their way together; else each is run before the next is taken."""
        if self._runner.info.num_lanes == 1:
            return not self._flights
        ahead = worker_delta.parse_step(self._in_flight[0])
        return not self._flights.is_full and not (self._flights and self.core.has_to_wait(ahead))

    def _take(self, delta: StepDelta) -> None:
        for slot in delta.preempted_slots:
            client = self._client_of(slot)
            client.preempted_at.append(len(client.output))
        step = self.core.apply(delta)
        if not len(step.batch.slots):
            self.core.wait_for_masks()
        self._desk.forget(delta.finished_slots)
        self.num_beside += bool(self._flights)
        self._flights.start(step)

    def _place(self, message: to_worker_pb2.NewRequestData) -> None:
        request = worker_delta.parse_new_request(message, self._runner.info)
        self._put_out(self.core.add(request))
        self._desk.add(request)
        if request.form is not None:
            while not self._take_prepared():
                pass

    def _take_prepared(self) -> bool:
        """Whether it is a grammar."""
        item = self._prepared.get(timeout=COMPILE_S)
        if isinstance(item, FirstMask):
            self._desk.take_mask(item)
            return False
        self._desk.take(item)
        return True

    def _tell(self, result: GrammarResult) -> None:
        event = worker_delta.build_grammar_event(result)
        kind = event.WhichOneof("event")
        assert kind in ("grammar_ready", "grammar_failed")
        take = self.scheduler.grammar_ready if kind == "grammar_ready" else self.scheduler.grammar_failed
        body = getattr(event, kind)
        take(WORKER, body.slot, body.ref.request_id, body.ref.attempt)
        self._put_out(result.outputs)

    def _put_out(self, outputs: list[FrontendOutput]) -> None:
        for output in outputs:
            counts = [1] * len(output.attempts) if output.counts is None else output.counts.tolist()
            tokens = iter(output.token_ids.tolist())
            for attempt, count in zip(output.attempts.tolist(), counts, strict=True):
                client = self._clients[attempt]
                client.output += [next(tokens) for _ in range(count)]
                client.num_accepted += max(count - 1, 0)
            for attempt, values in output.logprobs:
                self._clients[attempt].logprobs += [value.logprob for value in values]
            for attempt, _, tokens_read in output.prompt_logprobs:
                self._clients[attempt].prompt_logprobs += [token.logprob for token in tokens_read]
            for attempt, vector in output.vectors:
                self._clients[attempt].vector = vector.tolist()
            for attempt, reason, _, _ in output.finished:
                self._clients[attempt].ends.append(int(reason))

    def _client_of(self, slot: int) -> Client:
        ref = self.core.table.refs[slot]
        assert ref is not None
        return self._clients[ref.attempt]

    @property
    def acceptance(self) -> float:
        """Share of the drafts that were right."""
        totals = self.core.draft_totals
        return totals.num_accepted / max(totals.num_drafted, 1)
