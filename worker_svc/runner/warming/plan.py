"""Which steps a warm-up runs, so that each kernel variant that serving can need is compiled. Pure functions of limits.

A variant of a kernel depends on its constants and on the types, alignment and divisibility of its arguments. Of these
the shape of a step decides: whether it has chunks, whether a decode row's context is longer than a split, and whether
it has one query token (whose strides may be others). All else is the model's, and the same in every step.
"""

from __future__ import annotations

from dataclasses import dataclass

from worker_svc.core.requests.sampling import SamplingParams

GREEDY = SamplingParams(temperature=0.0)
ON_HOST = SamplingParams(temperature=0.0, num_logprobs=1)
"""Makes a step run without a graph, and its tokens come from the sampler of the host."""
SAMPLINGS = {
    "at a temperature": SamplingParams(),
    "with top_k and top_p": SamplingParams(top_k=40, top_p=0.9),
    "with top_p alone": SamplingParams(top_p=0.9),
    "with min_p": SamplingParams(min_p=0.1),
    "with penalties": SamplingParams(
        repetition_penalty=1.2, frequency_penalty=0.1, presence_penalty=0.1, logit_bias={0: 1.0}
    ),
    "with tokens forbidden": SamplingParams(
        min_tokens=4, stop_token_ids=frozenset({0}), bad_token_sequences=((1,),), allowed_token_ids=(0, 1, 2)
    ),
    "with log-probabilities": SamplingParams(num_logprobs=5),
}


@dataclass(frozen=True)
class WarmRow:
    """The query tokens `[start, start + count)` of a sequence."""

    start: int
    count: int


@dataclass(frozen=True)
class WarmStep:
    """One step. Its rows are in blocks that no request has."""

    name: str
    decodes: tuple[WarmRow, ...] = ()
    chunks: tuple[WarmRow, ...] = ()
    params: SamplingParams = GREEDY
    """How all of its samples are chosen."""
    is_masked: bool = False
    """Masks say what its samples may be."""
    is_scored: bool = False
    """Log-probabilities of its prompt tokens are computed."""

    @property
    def rows(self) -> tuple[WarmRow, ...]:
        """The decode rows, then the chunks."""
        return (*self.decodes, *self.chunks)


@dataclass(frozen=True)
class WarmLimits:
    """What steps of a worker can be."""

    num_slots: int
    most_positions: int
    """Positions of a sequence."""
    most_tokens: int
    """Query tokens of a step."""
    split: int
    """Positions from which on a decode row's context is computed in several parts."""
    graph_sizes: tuple[int, ...] = ()
    """Rows of the decode steps that have graphs, ascending."""
    num_drafts: int = 0
    """Most drafts of a row."""
    scores_prompts: bool = False

    def allow(self, step: WarmStep) -> bool:
        """Whether requests could make such a step."""
        longest = max(row.start + row.count for row in step.rows)
        num_tokens = sum(row.count for row in step.rows)
        return (
            len(step.rows) <= self.num_slots
            and longest < self.most_positions
            and num_tokens <= self.most_tokens
            and (self.scores_prompts or not step.is_scored)
        )


def plan_steps(limits: WarmLimits) -> list[WarmStep]:
    """The steps of a warm-up, in order; those that `limits` do not allow are left out."""
    steps = [*prompts(limits), *beside_contexts(limits), *graphs(limits), *samplings()]
    return [step for step in steps if limits.allow(step)]


def prompts(limits: WarmLimits) -> list[WarmStep]:
    """Chunks alone. The lengths are for the libraries of products, which choose a kernel by it."""
    most = min(limits.most_tokens, limits.most_positions - 1)
    lengths = sorted({1 << power for power in range(most.bit_length())} | {most})
    return [
        *(WarmStep(f"prompt of {length} tokens", chunks=(WarmRow(0, length),)) for length in lengths),
        WarmStep("last token of a prompt", chunks=(WarmRow(2, 1),)),
        WarmStep("two prompts", chunks=(WarmRow(0, 2), WarmRow(2, 2))),
        WarmStep("prompt whose tokens are scored", chunks=(WarmRow(0, 4),), is_scored=True),
    ]


def beside_contexts(limits: WarmLimits) -> list[WarmStep]:
    """Decode rows, alone and beside a chunk, with short contexts and with such as are computed in parts."""
    steps = []
    for length, start in (("short", 2), ("long", limits.split)):
        one, chunk = WarmRow(start, 1), (WarmRow(0, 3),)
        many = (one,) * (1 + max(limits.graph_sizes, default=1))
        drafted = (WarmRow(start, 1 + limits.num_drafts),) * 2
        steps += [
            WarmStep(f"decode row of a {length} context, without a graph", (one,), params=ON_HOST),
            WarmStep(f"decode rows of {length} contexts, without a graph", (one, one), params=ON_HOST),
            WarmStep(f"more rows of {length} contexts than graphs hold", many),
            WarmStep(f"decode row of a {length} context beside a prompt", (one,), chunk),
            WarmStep(f"decode rows of {length} contexts beside a prompt", (one, one), chunk, ON_HOST),
        ]
        if limits.num_drafts:
            steps += [
                WarmStep(f"drafts of a row of a {length} context", drafted[:1]),
                WarmStep(f"drafts of rows of {length} contexts", drafted),
                WarmStep(f"drafts of rows of {length} contexts beside a prompt", drafted, chunk),
            ]
    return steps


def graphs(limits: WarmLimits) -> list[WarmStep]:
    """Each graph, replayed once."""
    return [WarmStep(f"decode step of {size} rows", (WarmRow(2, 1),) * size) for size in limits.graph_sizes]


def samplings() -> list[WarmStep]:
    """Each way to choose a token: torch loads its kernels when they are first used."""
    two = (WarmRow(2, 1),) * 2
    return [
        *(WarmStep(f"sampling {name}", two, params=params) for name, params in SAMPLINGS.items()),
        WarmStep("sampling by a grammar", two, is_masked=True),
        WarmStep("sampling with top_p by a grammar", two, params=SamplingParams(top_p=0.9), is_masked=True),
    ]
