"""One process that takes requests as a frontend does, and serves them as a worker does, with a model that says random
things: the frontend's checks, the messages, the worker's core, its grammars, its masks and its sampler."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer as FastTokenizer

from frontend_svc.config import Limits
from frontend_svc.grammars.behind_reasoning import bind_form
from frontend_svc.links.outputs import feed
from frontend_svc.links.submission import make_submit
from frontend_svc.models import ModelDirectory, Worker
from frontend_svc.requests.events import Delta
from frontend_svc.requests.processor import RequestProcessor
from frontend_svc.requests.request import ClientRequest, Sampling
from frontend_svc.requests.sessions.losses import LossCause
from frontend_svc.requests.sessions.session import Session
from frontend_svc.requests.structured_output import FormCheck
from frontend_svc.text.parsing.language import Language
from frontend_svc.text.tokenizer import Tokenizer, load_tokenizer
from signalbox.cli.ring.ring import DEMO_MODEL
from signalbox.errors import SignalboxError
from signalbox.grammar.limits import FormLimits
from signalbox.v1 import to_worker_pb2
from tests.frontend_svc.requests.test_sessions import Recorder, make_table
from tests.worker_svc.forms.pairs import END_THINK, THINK, Pair
from worker_svc.core.batch import Batch, RunnerInfo, Sampled
from worker_svc.core.drafts.ngram import NgramDrafter
from worker_svc.core.faults.isolation import run_step
from worker_svc.core.step import FrontendOutput, SlotStart, StepDelta
from worker_svc.core.worker_core import WorkerCore
from worker_svc.grammar.coordinator import FirstMask, GrammarCoordinator, GrammarResult
from worker_svc.grammar.preparation import Prepared, make_preparation
from worker_svc.links import delta as wire
from worker_svc.runner.sampling.sampler import sample
from worker_svc.runner.sim.model import SimRunner

NUM_SLOTS, BLOCK, CONTEXT = 16, 16, 64
BLOCKS_PER_SLOT = CONTEXT // BLOCK
PROMPT = [5, 6, 7]
WAIT_S = 100
WORKER = "worker"


@dataclass
class Ended:
    """What a client got."""

    pair: Pair
    error: SignalboxError | None
    """Why it was refused, or failed."""
    delta: Delta | None = None
    """All of the output; None: it was refused before it began."""


def make_model(folder: Path) -> Path:
    """A directory with the demo model's vocabulary and two tags of reasoning."""
    fast = FastTokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
    fast.add_tokens([THINK, END_THINK])
    fast.save(str(folder / "tokenizer.json"))
    config = (DEMO_MODEL / "tokenizer_config.json").read_bytes()
    (folder / "tokenizer_config.json").write_bytes(config)
    return folder


class RandomModel(SimRunner):
    """Logits that depend on nothing but a request's seed and the place in its output. Tokens of one byte are likelier
    than others, since forms turn on them."""

    def __init__(self, info: RunnerInfo, tokenizer: Tokenizer) -> None:
        super().__init__(info)
        pieces = [tokenizer.piece(token) for token in range(info.vocab_size)]
        self._lift = np.array([4.0 if len(piece) <= 1 else 0.0 for piece in pieces], np.float32)

    def execute(self, batch: Batch) -> Sampled:
        """Samples from random logits."""
        rows = zip(
            batch.slots[batch.sample_rows].tolist(), batch.sample_output_positions.tolist(), strict=True
        )
        logits = np.stack([self._logits(int(batch.sampling.seed[slot]), place) for slot, place in rows])
        return sample(torch.from_numpy(logits), batch)

    def _logits(self, seed: int, place: int) -> np.ndarray:  # type: ignore[type-arg]
        numbers = np.random.default_rng((seed, place)).standard_normal(len(self._lift), np.float32)
        return numbers * 3 + self._lift


class Bench:
    """Serves pairs, `NUM_SLOTS` at a time."""

    def __init__(self, model_dir: Path, *, with_drafts: bool = False) -> None:
        self.tokenizer = load_tokenizer(model_dir)
        size = self.tokenizer.fast.get_vocab_size()
        self.eos = self.tokenizer.eos_token_id or 0
        self._info = RunnerInfo(
            "m",
            NUM_SLOTS * BLOCKS_PER_SLOT,
            BLOCK,
            CONTEXT,
            size,
            (self.eos,),
            max_draft_tokens=4 * with_drafts,
        )
        self._runner = RandomModel(self._info, self.tokenizer)
        self._language = Language(
            reasoning="qwen3",
            token_ids={tag: self.tokenizer.fast.token_to_id(tag) for tag in (THINK, END_THINK)},
        )
        self._check = FormCheck(model_dir / "tokenizer.json", self.eos, FormLimits())
        self._table = make_table(Recorder())
        directory = ModelDirectory()
        directory.replace([Worker(WORKER, "i", "127.0.0.1:1", "m", CONTEXT, BLOCK, CONTEXT, size, "")])
        self._processor = RequestProcessor(
            self._table,
            directory,
            self.tokenizer,
            Limits(),
            check_form=self._check,
            eos_tokens=frozenset({self.eos}),
        )
        self._core = WorkerCore(self._info, NUM_SLOTS, drafter=NgramDrafter(1, 3) if with_drafts else None)
        self._preparation = make_preparation(model_dir, self._info, FormLimits())
        self._prepared: queue.SimpleQueue[Prepared | FirstMask] = queue.SimpleQueue()
        self._desk = GrammarCoordinator(self._core, self._preparation, self._prepared.put, self._tell)
        self._step = 0

    def close(self) -> None:
        """Ends the processes that vet."""
        self._check.close()
        assert self._preparation is not None
        self._preparation.close()

    async def serve(self, pairs: Sequence[Pair]) -> list[Ended]:
        """What became of `pairs`, at most `NUM_SLOTS`."""
        ended: list[Ended] = []
        sessions: list[tuple[Pair, Session]] = []
        for pair in pairs:
            try:
                sessions.append((pair, await self._processor.open(self._request(pair))))
            except SignalboxError as error:
                ended.append(Ended(pair, error))
        self._run([session for _, session in sessions], {s.attempt: p.prior for p, s in sessions if p.prior})
        for pair, session in sessions:
            delta = await session.next_delta()
            assert delta.finished is not None
            ended.append(Ended(pair, delta.finished.error, delta))
        return ended

    def _request(self, pair: Pair) -> ClientRequest:
        sampling = Sampling(**pair.sampling)
        if pair.is_behind_reasoning:
            within = pair.budget.is_open if pair.budget else False
            sampling["structured_output"] = bind_form(pair.form, self._language, within)
        return ClientRequest(
            PROMPT, sampling, reasoning=pair.budget, request_id=f"r{pair.number}", use_model_defaults=False
        )

    def _run(self, sessions: Sequence[Session], moves: dict[int, int]) -> None:
        """Until all of them have ended. `moves`: after how many tokens a session begins again as another attempt."""
        slots = dict(enumerate(sessions))
        self._begin(slots)
        while running := [slot for slot, session in slots.items() if not session.ended]:
            again = [s for s in running if 0 < moves.get(slots[s].attempt, 0) <= len(slots[s].output)]
            for slot in again:
                moves.pop(slots[slot].attempt)
                slots[slot].lose("the worker is gone", LossCause.OUTPUT_LOST)
            if again:
                self._begin({slot: slots[slot] for slot in again})
            else:
                self._take_step([])
        self._take_step([], finished=list(slots))

    def _begin(self, sessions: dict[int, Session]) -> None:
        num_forms, starts = 0, []
        for slot, session in sessions.items():
            submit = make_submit(session, 1.0).submit
            known = submit.meta.num_prompt_tokens + submit.meta.num_prior_output_tokens
            message = to_worker_pb2.NewRequestData(
                slot=slot,
                ref=submit.ref,
                frontend_instance="f",
                scheduler_meta=submit.meta.SerializeToString(),
                payload=submit.payload,
                max_tokens=submit.meta.max_tokens,
                num_known_tokens=known,
                max_draft_tokens=self._info.max_draft_tokens,
            )
            request = wire.parse_new_request(message, self._info)
            self._say(self._core.add(request))
            self._desk.add(request)
            num_forms += request.form is not None
            first = slot * BLOCKS_PER_SLOT
            starts.append(
                SlotStart(slot, np.arange(first, first + BLOCKS_PER_SLOT, dtype=np.int32), 0, known)
            )
        for _ in range(num_forms):
            prepared = self._prepared.get(timeout=WAIT_S)
            assert isinstance(prepared, Prepared), "masks are made when they are begun"
            self._desk.take(prepared)
        self._take_step([start for start in starts if not sessions[start.slot].ended])

    def _take_step(self, started: list[SlotStart], finished: Sequence[int] = ()) -> None:
        self._step += 1
        step = self._core.apply(StepDelta(self._step, 1, started=started, finished_slots=list(finished)))
        self._desk.forget(list(finished))
        _, outputs = self._core.commit(step, *run_step(self._runner, step.copies, step.batch))
        self._core.table.check_integrity()
        self._say(outputs)

    def _tell(self, result: GrammarResult) -> None:
        self._say(result.outputs)

    def _say(self, outputs: Sequence[FrontendOutput]) -> None:
        for number, output in enumerate(outputs, 1):
            feed(wire.build_outputs(output, number), self._table, 0.0, WORKER)
