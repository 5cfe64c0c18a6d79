"""What prompts cost the rows that decode beside them, against what it costs to move a row (PD4). Pure functions: all
that they go by is in their arguments."""

from __future__ import annotations

from dataclasses import dataclass

MARGIN = 1.25
"""By so much the gain has to exceed the price: what is predicted is no better than that."""
STALL = 4.0
"""A second in which a prompt holds a row up counts as so many: it is felt as a gap between two tokens, which a second
that is spread over all of them is not."""
MOST_SHARE = 0.95
"""Largest share of a worker's time that prompts are taken to have."""
HORIZON_STEPS = 512
"""Steps for which is looked ahead: what comes later is not known, nor whether the request uses its limit up."""


@dataclass(frozen=True)
class StepLoad:
    """What the next steps of one worker have in them, and what they take."""

    num_rows: int
    """Requests that decode."""
    prefill_share: float
    """Share of its time that prompts took lately."""
    num_prefill_ahead: int
    """Prompt tokens that it has taken, and has still to compute."""
    base_s: float
    """Seconds of a step without any token."""
    token_s: float
    """Seconds per token of a step; 0: not known."""
    token_budget: int
    """Tokens of a step at most."""


@dataclass(frozen=True)
class MoveEstimate:
    """Whether a move pays, in seconds."""

    gain_s: float
    price_s: float

    @property
    def pays(self) -> bool:
        """It does, by a margin."""
        return self.gain_s > MARGIN * self.price_s


def decode_s(num_tokens: int, load: StepLoad, more_rows: int = 0) -> float:
    """Seconds in which a request has `num_tokens` more beside what else a worker has, `more_rows` on top; those in
    which prompts hold it up are weighed by STALL. Prompts come as often as they did, and those ahead are computed
    first, a step's budget at a time."""
    own_s = num_tokens * (load.base_s + load.token_s * (load.num_rows + more_rows))
    share = min(load.prefill_share, MOST_SHARE)
    ahead = min(load.num_prefill_ahead, num_tokens * load.token_budget)
    return own_s + STALL * max(own_s * share / (1 - share), ahead * load.token_s)


def weigh_move(num_left: int, source: StepLoad, target: StepLoad, price_s: float) -> MoveEstimate:
    """Whether a request that decodes at the source, and may have `num_left` more tokens, goes to the target for
    `price_s`: the copy, and the steps for which nobody runs it."""
    if not source.token_s:  # not known yet: as its role says
        return MoveEstimate(float("inf"), price_s)
    steps = min(num_left, HORIZON_STEPS)
    return MoveEstimate(decode_s(steps, source) - decode_s(steps, target, more_rows=1), price_s)


def prefill_cost_s(num_tokens: int, num_waiting: int, load: StepLoad) -> float:
    """What a prompt costs that is computed on a worker: its own first token waits for those ahead and for itself, with
    `num_waiting` tokens that go there first, and each row that decodes there waits for it."""
    ahead = load.num_prefill_ahead + num_waiting
    return load.token_s * (ahead + num_tokens * (1 + load.num_rows))
