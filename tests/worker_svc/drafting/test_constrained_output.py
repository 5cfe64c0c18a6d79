"""Outputs with a form, beside free ones in the same steps, are valid and the same with and without drafts, whatever the
depth, whatever happens to the blocks, and wherever they go on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import jsonschema
import pytest
from tokenizers import Tokenizer

from signalbox.cli.ring.ring import DEMO_MODEL
from signalbox.grammar.limits import FormLimits
from signalbox.protocol.enums import FinishReason
from signalbox.v1 import generation_pb2
from tests.worker_svc.drafting.local_ring import Client, LocalRing, fill_with_garbage
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.core.drafts.ngram import NgramDrafter
from worker_svc.grammar.compiler import GrammarCompiler
from worker_svc.grammar.preparation import GrammarPreparation
from worker_svc.runner.draft_model import LoadedDraft, load_draft
from worker_svc.runner.torch_runner import TorchRunner

NUM_DRAFTS, NUM_TOKENS = 3, 56
TEXT = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
DRAWS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 0.8, "top_k": 40, "top_p": 0.95},
}
METHODS = ("none", "ngram", "draft")
CACHES = {"undisturbed": (400, 0), "preempted": (40, 0), "swapped": (40, 300)}
"""Blocks of the cache and of the host tier."""
ENTRY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8, "pattern": "^[a-z_]*$"},
        "size": {"type": "integer", "minimum": 0, "maximum": 4096},
        "tags": {"type": "array", "items": {"enum": ["old", "new", None]}, "maxItems": 3},
    },
    "required": ["name", "size", "tags"],
    "additionalProperties": False,
}
CALL = r"[a-z_]{2,8}\(([a-z]{1,6}, ){3,6}[a-z]{1,6}\)\n"
BRACKETS = 'root ::= "[" item ("," item){3} "]"\nitem ::= root0 | "x" | "y"\nroot0 ::= "(" item ")"'
CHOICES = ("return the value of the name", "return the values of the names", "raise ValueError")


@dataclass(frozen=True)
class Case:
    """A prompt, and what its output has to follow."""

    prompt: str
    form: dict[str, Any] | None = None
    check: Callable[[str], object] = lambda text: None
    """Raises, or returns what is not true, for a text that does not follow the form."""


CASES = (
    Case(
        'ENTRIES = [\n    {"name": "read", "size": 12, "tags": ["old", "new"]},\n    ',
        {"json_schema": json.dumps(ENTRY)},
        lambda text: jsonschema.validate(json.loads(text), ENTRY) is None,
    ),
    Case("def main():\n    import os\n    "),
    Case(
        "call(one, two, three)\ncall(one, two, three)\n",
        {"regex": CALL},
        lambda text: re.fullmatch(CALL, text),
    ),
    Case("X = [[x,(y),x,y],\n[", {"grammar": BRACKETS}, lambda text: re.fullmatch(r"\[[xy(),]+\]", text)),
    Case("NAMES = ['a', 'b', 'a', 'b', 'a', 'b',"),
    Case('    """', {"choice": {"values": CHOICES}}, lambda text: text in CHOICES),
)


class Bench:
    """What takes long to load, once: model, draft model, compiled forms."""

    def __init__(self, make: Callable[[int, int], TorchRunner] | None = None) -> None:
        """make: a runner of the demo model with so many blocks, and so many on the host; None: in this process."""
        options: dict[str, Any] = {"dtype": "float32", "block_size": 4, "threads": 1, "max_model_len": 120}
        num_blocks, num_host_blocks = (max(sizes) for sizes in zip(*CACHES.values(), strict=True))
        self.runner = (
            make(num_blocks, num_host_blocks)
            if make is not None
            else TorchRunner(
                DEMO_MODEL,
                served_model_name="demo",
                num_blocks=num_blocks,
                num_host_blocks=num_host_blocks,
                **options,
            )
        )
        self.info = self.runner.info
        self.draft: LoadedDraft = load_draft(
            DEMO_MODEL / "draft", DEMO_MODEL, dtype="float32", device="cpu", block_size=4
        )
        compiler = GrammarCompiler(
            DEMO_MODEL / "tokenizer.json", self.info.vocab_size, self.info.eos_token_ids, FormLimits()
        )
        self.grammars = GrammarPreparation(compiler)

    def ring(self, method: str, cache: str = "undisturbed", depth: int = 1) -> LocalRing:
        """A new worker and scheduler, on caches that start as garbage."""
        num_blocks, num_host_blocks = CACHES[cache]
        num_drafts = NUM_DRAFTS if method != "none" else 0
        self.runner.info = replace(
            self.info, num_blocks=num_blocks, num_host_blocks=num_host_blocks, max_draft_tokens=num_drafts
        )
        fill_with_garbage(self.runner._cache)
        drafter: Drafter | None = None
        if method == "ngram":
            drafter = NgramDrafter(1, 4)
        elif method == "draft":
            drafter = self.draft.on(self.runner)
            fill_with_garbage(drafter.cache)
        return LocalRing(self.runner, drafter, depth=depth, num_drafts=num_drafts, grammars=self.grammars)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.grammars.close()


def submit(ring: LocalRing, case: Case, draw: str, prior: list[int] | None = None) -> Client:
    form = None if case.form is None else generation_pb2.StructuredOutput(**case.form)
    sampling = generation_pb2.SamplingParams(seed=len(case.prompt), structured_output=form, **DRAWS[draw])
    return ring.submit(TEXT.encode(case.prompt).ids, NUM_TOKENS, sampling, prior=prior or [])


Outputs = dict[str, list[list[int]]]


@pytest.fixture(scope="module")
def plain(bench: Bench) -> Outputs:
    return outputs_without_drafts(bench)


def outputs_without_drafts(bench: Bench) -> Outputs:
    """Outputs of each draw without drafts, one after the other on a ring of its own."""
    outputs: Outputs = {}
    for draw in DRAWS:
        outputs[draw] = []
        for case in CASES:
            ring = bench.ring("none")
            client = submit(ring, case, draw)
            ring.run()
            outputs[draw].append(client.output)
    return outputs


def assert_valid(case: Case, client: Client) -> None:
    """It ended once, and properly: one with a form by it."""
    wanted = FinishReason.LENGTH if case.form is None else FinishReason.STOP
    assert client.ends == [wanted], case
    text = TEXT.decode(client.output, skip_special_tokens=True)
    assert case.form is None or case.check(text), text


@pytest.mark.sampled
@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("draw", DRAWS)
def test_valid_and_the_same(
    draw: str, method: str, cache: str, depth: int, bench: Bench, plain: Outputs
) -> None:
    play_all(draw, method, cache, depth, bench, plain)


def play_all(draw: str, method: str, cache: str, depth: int, bench: Bench, plain: Outputs) -> LocalRing:
    """All cases twice, some later than others; asserts that they end properly, as alone."""
    ring = bench.ring(method, cache, depth)
    clients = [submit(ring, case, draw) for case in CASES]
    for _ in range(12):
        ring.step()
    clients += [submit(ring, case, draw) for case in CASES]
    ring.run()
    for case, client, expected in zip(CASES * 2, clients, plain[draw] * 2, strict=True):
        assert_valid(case, client)
        assert client.output == expected, case
    constrained = [client for case, client in zip(CASES * 2, clients, strict=True) if case.form is not None]
    assert any(at > 0 for client in constrained for at in client.preempted_at) == (cache != "undisturbed")
    assert (ring.worker.stats.num_host_hit_tokens > 0) == (cache == "swapped")
    num_accepted = sum(client.num_accepted for client in constrained)
    assert num_accepted == 0 if method == "none" else num_accepted > 20
    return ring


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("draw", DRAWS)
def test_an_output_goes_on_elsewhere_from_wherever_it_was_cut(
    draw: str, method: str, bench: Bench, plain: Outputs
) -> None:
    """The worker is gone after some steps; another one gets the prompts with what the clients have."""
    num_continued = 0
    for num_steps in (2, 3, 5, 8, 13, 20):
        lost = bench.ring(method, depth=2)
        before = [submit(lost, case, draw) for case in CASES]
        for _ in range(num_steps):
            lost.step()
        ring = bench.ring(method, depth=2)
        after = [
            client if client.ends else submit(ring, case, draw, prior=client.output)
            for case, client in zip(CASES, before, strict=True)
        ]
        ring.run()
        for case, old, new, expected in zip(CASES, before, after, plain[draw], strict=True):
            assert_valid(case, new)
            assert new.output == expected, (case, num_steps)
            num_continued += case.form is not None and new is not old and len(old.output) > 0
    assert num_continued >= 8


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_an_output_that_was_complete_when_its_worker_was_lost_just_ends(
    method: str, bench: Bench, plain: Outputs
) -> None:
    ring = bench.ring(method, depth=2)
    constrained = [(case, output) for case, output in zip(CASES, plain["greedy"], strict=True) if case.form]
    clients = [submit(ring, case, "greedy", prior=output) for case, output in constrained]
    ring.run()
    for (case, output), client in zip(constrained, clients, strict=True):
        assert_valid(case, client)
        assert client.output == output


@pytest.mark.parametrize("method", METHODS)
def test_a_form_that_asks_for_too_much_ends_at_its_token_with_and_without_drafts(
    method: str, bench: Bench
) -> None:
    """G8, G9. One of them goes on from the output of another."""
    alone = []
    for seed in range(3):
        plain = bench.ring("none")
        alone.append(submit_ambiguous(plain, seed))
        plain.run()
    ring = bench.ring(method)
    clients = [submit_ambiguous(ring, seed) for seed in range(3)]
    clients.append(submit_ambiguous(ring, 0, prior=alone[0].output[: len(alone[0].output) // 2]))
    ring.run()
    for client, expected in zip(clients, [*alone, alone[0]], strict=True):
        assert client.ends == expected.ends == [FinishReason.ERROR]
        assert client.output == expected.output and client.output


def submit_ambiguous(ring: LocalRing, seed: int, prior: list[int] | None = None) -> Client:
    form = generation_pb2.StructuredOutput(grammar='root ::= s s s s s s\ns ::= [a-z] | s s | ""')
    sampling = generation_pb2.SamplingParams(seed=seed, structured_output=form, temperature=1.0)
    return ring.submit(TEXT.encode("x").ids, NUM_TOKENS, sampling, prior=prior or [])
