"""Requests that come one after another, and a machine whose steps take what a model of their cost says, for the policy
that limits drafts. Seeded, without a clock: the policy sees noisy durations, the result counts the true ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from worker_svc.core.drafts.policy import DraftPolicy

MOST = 4
"""Drafts per row and step."""
OUTPUT_TOKENS = 192
ANSWER_STEPS = 2
"""From asking for a limit to its confirmation."""
CATCH_UP_TOKENS = 512
"""As in the draft model's drafter."""

Rate = Callable[[int], float]
"""Chance of each draft to be right, given how many output tokens its request has."""


@dataclass(frozen=True)
class Machine:
    """Durations, all in shares of a step of one row without drafts."""

    row: float = 0.09
    """Each further row."""
    draft_step: float = 0.15
    """Each draft of the row that has most: a run of the draft model."""
    draft: float = 0.04
    """Each draft token: it is made, and looked at by the target."""
    look: float = 0.0
    """Each row that drafts are wanted for, found or not."""
    known_token: float = 0.01
    """Each known token that the draft model has to compute first; 0: nothing is to be computed."""
    found: float = 1.0
    """Share of the times that drafts are found when wanted."""

    def plain_s(self, num_rows: int) -> float:
        """Duration without drafts."""
        return 1 + self.row * (num_rows - 1)


Noise = Callable[[np.random.Generator, int], float]
"""Factor of a step's duration, by its number."""

DRAFT_MODEL = Machine()
NGRAM = Machine(draft_step=0.0, draft=0.04, look=0.01, known_token=0.0, found=0.5)


def quiet(random: np.random.Generator, step: int) -> float:
    """Noise of a machine that does nothing else."""
    return 1.0


def noisy(random: np.random.Generator, step: int) -> float:
    """Steps differ by a fifth, and some are held up by something else."""
    held_up = random.pareto(2.0) if random.random() < 0.05 else 0.0
    return float(np.exp(random.normal(0, 0.2)) + min(held_up, 20.0))


def busy(random: np.random.Generator, step: int) -> float:
    """As `noisy`, and for a time now and then everything takes longer."""
    phase = np.sin(step / 37) + np.sin(step / 101)
    return noisy(random, step) * (1.7 if phase > 0.6 else 1.0)


@dataclass
class Load:
    """`streams` streams of requests, each begun as the one before it ended."""

    machine: Machine
    rate_of: Callable[[int], Rate]
    """Of the request with this number."""
    streams: int = 8
    noise: Noise = quiet
    prompt_tokens: int = 40
    output_tokens: int = OUTPUT_TOKENS
    seed: int = 0
    num_steps: int = 0
    num_drafted: int = 0

    def __post_init__(self) -> None:
        count = self.streams
        self.policy = DraftPolicy(count, MOST)
        self._random = np.random.default_rng(self.seed)
        self._noise_random = np.random.default_rng(self.seed + 1)
        self._slots = np.arange(count)
        self._confirmed = np.zeros(count, np.int32)
        self._num_output = np.zeros(count, np.int64)
        self._covered = np.zeros(count, np.int64)
        """Known tokens that the draft model has computed."""
        self._rates: list[Rate] = [lambda num_output: 0.0] * count
        self._answers: list[tuple[int, int, int]] = []
        """(step, slot, limit)"""
        self._num_requests = 0
        self._time = self._plain_time = 0.0
        for slot in range(count):
            self._start(slot)
            # They do not end in the same step.
            self._num_output[slot] = slot * self.output_tokens // count

    def run(self, num_steps: int) -> float:
        """So many steps. Returns the throughput in shares of that without drafts."""
        time, plain_time = self._time, self._plain_time
        for _ in range(num_steps):
            self._step()
        return (self._plain_time - plain_time) / (self._time - time)

    def _start(self, slot: int) -> None:
        self._rates[slot] = self.rate_of(self._num_requests)
        self._num_requests += 1
        self._num_output[slot] = self._covered[slot] = 0
        self._answers = [answer for answer in self._answers if answer[1] != slot]
        self._confirmed[slot] = MOST
        self.policy.start(slot, MOST)

    def _step(self) -> None:
        self.num_steps += 1
        for _, slot, limit in [answer for answer in self._answers if answer[0] <= self.num_steps]:
            self._confirmed[slot] = limit
        self._answers = [answer for answer in self._answers if answer[0] > self.num_steps]
        room = np.minimum(self._confirmed, self.output_tokens - self._num_output - 1).astype(np.int64)
        wanted = self.policy.choose(self._slots, np.maximum(room, 0), self._confirmed, True)
        drafted, num_caught_up = self._propose(wanted)
        matched = np.array([self._count_right(slot, count) for slot, count in enumerate(drafted.tolist())])
        self._tell(wanted, drafted, matched, num_caught_up)
        for slot, limit in self.policy.take_changes():
            self._answers.append((self.num_steps + ANSWER_STEPS, slot, limit))
        self._go_on(1 + matched)

    def _propose(self, wanted: np.ndarray) -> tuple[np.ndarray, int]:
        """Drafts per row, and how many known tokens the draft model computed for them."""
        drafted, num_caught_up = wanted.copy(), 0
        for slot in np.flatnonzero(wanted).tolist():
            if self.machine.known_token:
                lag = self.prompt_tokens + int(self._num_output[slot] - self._covered[slot])
                if lag > MOST + 1:
                    length = min(lag, CATCH_UP_TOKENS - num_caught_up)
                    num_caught_up += length
                    self._covered[slot] += length
                    if length < lag:
                        drafted[slot] = 0
                else:
                    self._covered[slot] += lag
            elif self._random.random() >= self.machine.found:
                drafted[slot] = 0
        return drafted, num_caught_up

    def _count_right(self, slot: int, count: int) -> int:
        rate = self._rates[slot](int(self._num_output[slot]))
        return next((i for i in range(count) if self._random.random() >= rate), count)

    def _tell(self, wanted: np.ndarray, drafted: np.ndarray, matched: np.ndarray, num_caught_up: int) -> None:
        machine, count = self.machine, self.streams
        plain_s = machine.plain_s(count)
        seconds = plain_s + machine.draft_step * int(drafted.max()) + machine.draft * int(drafted.sum())
        seconds += machine.look * int((wanted > 0).sum()) + machine.known_token * num_caught_up
        noise = self.noise(self._noise_random, self.num_steps)
        self.policy.learn(self._slots, drafted, matched, num_caught_up > 0)
        self.policy.take_duration(count, seconds * noise)
        self._time += seconds
        self._plain_time += plain_s * (1 + float(matched.mean()))
        self.num_drafted += int(drafted.sum())

    def _go_on(self, new_tokens: np.ndarray) -> None:
        self._num_output += new_tokens
        for slot in np.flatnonzero(self._num_output >= self.output_tokens).tolist():
            self._start(slot)
