"""What the masks of forms cost on this machine: 200 public JSON schemas and 50 hostile forms, within the limits.

    python -m signalbox.benchmarks.forms.bench [--tokenizer PATH] [--tokens 300] [--step-max-items 3000]

One line for each hostile form, and one for all schemas: milliseconds of CPU of the dearest token, seconds for all, and
how the output ended. docs/security.md tells what the figures mean.
"""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

from signalbox.benchmarks.forms.corpus import read_corpus
from signalbox.benchmarks.forms.follow import Followed, follow
from signalbox.benchmarks.forms.hostile import hostile_forms
from signalbox.cli.ring.ring import DEMO_MODEL
from signalbox.grammar.compilation import compile_grammar, load_tokenizer
from signalbox.grammar.form import Form, FormError
from signalbox.grammar.limits import FormLimits
from signalbox.grammar.vetting import Vetter
from worker_svc.grammar.automaton import CompiledForm, MatcherAutomaton

NUM_SEEDS = 3


class Bench:
    """The vocabulary, and a process that vets."""

    def __init__(self, tokenizer: Path, limits: FormLimits) -> None:
        self._tokenizer = load_tokenizer(tokenizer, None, [0])
        self._limits = limits
        self._vetter = Vetter(tokenizer, limits, eos_token_ids=[0])

    def run(self, form: Form, num_tokens: int) -> list[Followed] | str:
        """Outputs of a form, or why it is refused."""
        try:
            grammar = self._vetter.vet(form)
        except FormError as error:
            return str(error)
        full = compile_grammar(self._tokenizer, grammar, self._limits)
        compiled = CompiledForm(full, compile_grammar(self._tokenizer, grammar, self._limits, light=True))
        return [
            follow(
                MatcherAutomaton(compiled, self._limits, frozenset((0,)), lambda: None),
                self._tokenizer.vocab_size,
                seed,
                num_tokens,
            )
            for seed in range(NUM_SEEDS)
        ]

    def close(self) -> None:
        """Ends the process."""
        self._vetter.close()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizer", type=Path, default=DEMO_MODEL / "tokenizer.json")
    parser.add_argument("--tokens", type=int, default=300, help="most tokens of an output")
    for limit in fields(FormLimits):
        parser.add_argument(f"--{limit.name.replace('_', '-')}", type=int, default=limit.default)
    args = parser.parse_args()
    limits = FormLimits(*(getattr(args, limit.name) for limit in fields(FormLimits)))
    bench = Bench(args.tokenizer, limits)
    outputs, refused = list[Followed](), list[str]()
    for name, form in read_corpus().items():
        found = bench.run(form, args.tokens)
        if isinstance(found, str):
            refused.append(f"{name}: {found}")
        else:
            outputs += found
    print(line("200 public schemas", outputs))
    print("\n".join(f"  refused: {each}" for each in refused))
    for name, form in hostile_forms().items():
        found = bench.run(form, args.tokens)
        print(f"{name:26} refused: {found[:80]}" if isinstance(found, str) else line(name, found))
    bench.close()


def line(name: str, outputs: list[Followed]) -> str:
    """One line of the table."""
    worst, total = max(each.worst_s for each in outputs), sum(each.total_s for each in outputs)
    tokens, error = (
        sum(len(each.tokens) for each in outputs),
        next((each.error for each in outputs if each.error), ""),
    )
    return f"{name:26} worst {worst * 1e3:5.1f} ms, {total:6.2f} s for {tokens:5} tokens {error[:80]}"


if __name__ == "__main__":
    main()
