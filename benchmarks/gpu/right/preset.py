"""One tiny model: made, loaded by the product's runner, and served in all the ways that are compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.gpu.right.cores import CoreRing, RingSettings, Served
from benchmarks.gpu.right.drafts import KnownDrafter
from benchmarks.gpu.right.handing import hand_over
from benchmarks.gpu.right.reference import Agreement, Reference
from benchmarks.gpu.right.sizes import NUM_DRAFTS, RightSizes
from signalbox.grammar.form import Form, FormKind
from signalbox.grammar.limits import FormLimits
from tools.make_random_model import make_model, write_word_tokenizer
from worker_svc.grammar.compiler import GrammarCompiler
from worker_svc.grammar.preparation import GrammarPreparation
from worker_svc.runner.cuda.captures import Capture
from worker_svc.runner.cuda.runner import CudaRunner

FORM = Form(FormKind.REGEX, r"( w[0-9]*[02468]){3,5}")
"""Of words with even numbers, which a model with random weights would not choose."""


class Case(NamedTuple):
    """What came of one way of serving."""

    name: str
    agreement: Agreement | None
    """None: it was not run."""
    note: str = ""
    """Counts that show that it was that way; why it was not run."""
    problem: str = ""
    """Why it counts as failed, wrong tokens apart."""


class TinyModel:
    """A preset on the runner, with its reference."""

    def __init__(
        self, preset: str, folder: Path, device: str, sizes: RightSizes, capture: Capture | None = None
    ) -> None:
        """capture: stands in for CUDA graphs; None: on a GPU they are captured."""
        self._sizes, self.path = sizes, make_model(preset, folder / preset)
        _lengthen(self.path, sizes.max_model_len)
        write_word_tokenizer(self.path)
        self.runner = CudaRunner(
            self.path,
            served_model_name=preset,
            attention="auto" if device == "cuda" else "triton",
            capture=capture,
            device=device,
            dtype="float32",
            num_blocks=sizes.num_blocks,
            block_size=sizes.block_size,
            num_slots=sizes.num_slots,
            max_draft_tokens=NUM_DRAFTS,
            max_num_batched_tokens=sizes.chunk,
            mean_request_tokens=sizes.max_model_len // 2,
            shares_blocks=True,
        )
        self.runner.info = replace(self.runner.info, max_draft_tokens=NUM_DRAFTS)
        self.reference = Reference(self.path, self.runner.model.device)
        longest = self.runner.info.max_model_len - sizes.num_outputs - NUM_DRAFTS - 1
        random = np.random.default_rng(1)
        self.prompts = [
            random.integers(3, self.runner.info.vocab_size, min(length, longest)).tolist()
            for length in sizes.prompts
        ]

    def cases(self) -> Iterator[Case]:
        """Each way of serving, in turn."""
        _, served = in_turn = self._serve(RingSettings(depth=1))
        yield self._in_turn(*in_turn)
        ring, ahead = self._serve(RingSettings())
        yield self._ahead(ring, ahead)
        yield self._cached(ring)
        yield self._preempted()
        yield self._drafted([[*each.prompt, *each.output] for each in served])
        yield self._formed()
        yield self._handed_over()

    def _in_turn(self, ring: CoreRing, served: list[Served]) -> Case:
        chunks = sum(-(-len(prompt) // self._sizes.chunk) for prompt in self.prompts)
        note = f"{ring.worker.stats.num_steps} steps, {chunks} chunks"
        return Case("chunked, in turn", self._compare(served), note)

    def _ahead(self, ring: CoreRing, served: list[Served]) -> Case:
        few = ring.num_ahead < self._sizes.num_outputs // 2
        problem = "steps hardly ran ahead" if few else ""
        return Case("one ahead", self._compare(served), f"{ring.num_ahead} steps ahead", problem)

    def _cached(self, ring: CoreRing) -> Case:
        """The prompts again, in a ring that has served them."""
        info = self.runner.info
        if info.num_state_versions and info.state_group is None:
            return Case("cached", None, "the model has recurrent states and no checkpoints")
        served = ring.serve(self.prompts, self._sizes.num_outputs)
        hits = ring.worker.stats.num_prefix_hit_tokens
        # States are kept at few places of a prompt, and these prompts may have none.
        problem = "" if hits or info.num_state_versions else "no token was found in the cache"
        return Case("cached", self._compare(served), f"{hits} tokens found", problem)

    def _preempted(self) -> Case:
        """Requests that all have room at first, and not at the end."""
        size, num_seqs = self.runner.info.block_size, self._sizes.num_slots // 2
        random = np.random.default_rng(2)
        prompts = random.integers(3, self.runner.info.vocab_size, (num_seqs, 2 * size - 1)).tolist()
        ring = self._ring(RingSettings(num_blocks=2 * num_seqs + 2))
        served = ring.serve(prompts, self._sizes.num_outputs)
        count = ring.worker.stats.num_preemptions
        problem = "" if count else "nobody was preempted"
        return Case("preempted", self._compare(served), f"{count} preemptions", problem)

    def _drafted(self, wholes: list[list[int]]) -> Case:
        """wholes: prompts with their outputs."""
        ring = self._ring(
            RingSettings(num_drafts=NUM_DRAFTS), KnownDrafter(wholes, self.runner.info.vocab_size)
        )
        served = ring.serve(self.prompts, self._sizes.num_outputs)
        totals = ring.core.draft_totals
        mixed = 0 < totals.num_accepted < totals.num_drafted
        note = f"{totals.num_accepted} of {totals.num_drafted} accepted"
        return Case(
            "drafts", self._compare(served), note, "" if mixed else "drafts were all right, or all wrong"
        )

    def _formed(self) -> Case:
        info = self.runner.info
        compiler = GrammarCompiler(
            self.path / "tokenizer.json", info.vocab_size, info.eos_token_ids, FormLimits()
        )
        grammars = GrammarPreparation(compiler)
        try:
            ring = self._ring(RingSettings(), grammars=grammars)
            served = ring.serve(self.prompts[:2], self._sizes.num_outputs, FORM.text)
            agreement = Agreement()
            for each in served:
                automaton = compiler.automaton(FORM)
                agreement += self.reference.compare_masked(each.prompt, each.output, automaton)
        finally:
            grammars.close()
        return Case("grammar", agreement, f"{agreement.tokens} tokens of a form")

    def _handed_over(self) -> Case:
        if not self.runner.info.kv_layout:
            return Case("handed over", None, "blocks of this runner do not travel")
        if self.runner.info.groups:
            return Case("handed over", None, "only models without windows are handed over here")
        short = [prompt for prompt in self.prompts if len(prompt) <= self._sizes.chunk]
        moved = hand_over(self.runner, short, self._sizes.num_outputs)
        served = [Served(prompt, output) for prompt, output in moved]
        return Case("handed over", self._compare(served), "to other blocks and another slot")

    def _serve(self, settings: RingSettings) -> tuple[CoreRing, list[Served]]:
        ring = self._ring(settings)
        served = ring.serve(self.prompts, self._sizes.num_outputs)
        return ring, served

    def _ring(
        self,
        settings: RingSettings,
        drafter: KnownDrafter | None = None,
        grammars: GrammarPreparation | None = None,
    ) -> CoreRing:
        settings = replace(settings, chunk=self._sizes.chunk, num_seqs=self._sizes.num_slots // 2)
        return CoreRing(self.runner, settings, drafter, grammars)

    def _compare(self, served: list[Served]) -> Agreement:
        return sum((self.reference.compare(each.prompt, each.output) for each in served), Agreement())


def _lengthen(path: Path, max_positions: int) -> None:
    """Lets a model whose rotations do not depend on it take longer prompts than its preset says."""
    config = json.loads((path / "config.json").read_text())
    if (config.get("rope_parameters") or {}).get("rope_type") == "default":
        config["max_position_embeddings"] = max(max_positions, config["max_position_embeddings"])
        (path / "config.json").write_text(json.dumps(config))
