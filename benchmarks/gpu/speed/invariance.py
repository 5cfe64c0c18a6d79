"""How much a row's greedy tokens depend on its company, in the model's own type: alone or among others, in chunks,
computed again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.gpu.context import Context
from benchmarks.gpu.speed.loaded import Loaded
from benchmarks.gpu.speed.steps import Steps
from signalbox.benchmarks.runner.requests import Requests

COUNT, ALONE, OUTPUTS, LENGTHS = 64, 8, 24, (60, 300)
CPU_COUNT, CPU_ALONE, CPU_OUTPUTS, CPU_LENGTHS = 2, 1, 2, (4, 9)
NONE = np.empty(0, np.int32)


class Sequences:
    """The same prompts, computed and decoded in one way or another."""

    def __init__(self, model: Loaded, prompts: Sequence[np.ndarray], num_outputs: int) -> None:  # type: ignore[type-arg]
        self._requests = Requests(list(prompts), num_outputs + 4, model.runner.info.block_size)
        self._steps = Steps(model, self._requests)

    def compute(self, slots: Sequence[int], parts: int = 1, *, together: bool = False) -> None:
        """Computes what is known of sequences: each in steps of its own, `parts` of them, or all in one step."""
        lengths = {slot: int(self._requests.num_tokens[slot]) for slot in slots}
        if together:
            self._steps.step(list(lengths.items()), NONE)
        else:
            for slot, length in lengths.items():
                cuts = np.linspace(0, length, parts + 1).astype(int)
                for size in np.diff(cuts).tolist():
                    self._steps.step([(slot, size)], NONE)
        self._steps.settle()

    def decode(self, slots: Sequence[int], num_steps: int, depth: int = 1) -> None:
        """So many more tokens."""
        for _ in range(num_steps):
            self._steps.step(rows=np.array(slots, np.int32), depth=depth)
        self._steps.settle()

    def forget(self) -> None:
        """All are preempted: nothing is computed any more."""
        self._requests.num_computed[:] = 0

    def outputs(self, slots: Sequence[int], count: int) -> list[list[int]]:
        """Their first tokens."""
        return [self._requests.output(slot)[:count] for slot in slots]


def compare_companies(context: Context, model: Loaded) -> None:
    """Writes a line for each way: how many sequences have the tokens that they have in steps of all, in turn."""
    gpu = context.order.is_gpu
    count, alone, outputs = (COUNT, ALONE, OUTPUTS) if gpu else (CPU_COUNT, CPU_ALONE, CPU_OUTPUTS)
    random = np.random.default_rng(11)
    prompts = [
        random.integers(3, model.runner.info.vocab_size, length).astype(np.int32)
        for length in random.integers(*(LENGTHS if gpu else CPU_LENGTHS), count)
    ]
    everyone, few = list(range(count)), list(range(alone))

    def fresh() -> Sequences:
        return Sequences(model, prompts, outputs)

    def tell(name: str, slots: Sequence[int], ours: Sequences) -> None:
        expected, found = (each.outputs(slots, outputs) for each in (base, ours))
        equal = sum(one == other for one, other in zip(expected, found, strict=True))
        context.line("company", way=name, sequences=len(slots), equal=equal)

    base = fresh()
    base.compute(everyone)
    base.decode(everyone, outputs - 1)
    again = fresh()
    again.compute(everyone)
    again.decode(everyone, outputs - 1, depth=2)
    tell("the same again, one ahead", everyone, again)
    single = fresh()
    for slot in few:
        single.compute([slot])
        single.decode([slot], outputs - 1)
    tell(f"alone, not among {count}", few, single)
    together = fresh()
    together.compute(everyone, together=True)
    together.decode(everyone, outputs - 1)
    tell("prompts in one step", everyone, together)
    halves = fresh()
    halves.compute(everyone, 2)
    halves.decode(everyone, outputs - 1)
    tell("prompts in two chunks", everyone, halves)
    preempted = fresh()
    preempted.compute(everyone)
    preempted.decode(everyone, outputs // 2)
    preempted.forget()
    preempted.compute(everyone)
    preempted.decode(everyone, outputs - 2 - outputs // 2)
    tell("preempted and computed again", everyone, preempted)
