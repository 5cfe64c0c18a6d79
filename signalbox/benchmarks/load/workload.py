"""What a load bench asks for: prompts of random tokens, lengths, and when each request is to be sent."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Lengths:
    """Numbers of tokens, each from `low` to `high` equally likely."""

    low: int
    high: int

    def __post_init__(self) -> None:
        assert 1 <= self.low <= self.high

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"

    def draw(self, source: random.Random) -> int:
        """One of them."""
        return source.randint(self.low, self.high)


@dataclass(frozen=True)
class Draw:
    """How all requests choose their tokens."""

    temperature: float = 0.0
    top_k: int = 0
    """0 keeps all tokens."""
    top_p: float = 1.0

    def fields(self) -> dict[str, Any]:
        """Names and values for a request; limits that keep all are left out, since not every server knows them."""
        limits = {"top_k": self.top_k} if self.top_k else {}
        return {
            "temperature": self.temperature,
            **limits,
            **({"top_p": self.top_p} if self.top_p != 1 else {}),
        }


GREEDY = Draw()


@dataclass(frozen=True)
class Plan:
    """One request, without an end before `max_tokens`."""

    prompt: list[int]
    """The prompt as token ids."""
    max_tokens: int


@dataclass(frozen=True)
class Workload:
    """Requests without end. The same seed gives the same requests; two prompts share no prefix but by chance, so that
    the prefix cache does not answer for the model."""

    prompt_tokens: Lengths
    output_tokens: Lengths
    vocab_size: int
    """Token ids are drawn from 0 to vocab_size - 1."""
    seed: str

    def plans(self) -> Iterator[Plan]:
        """The requests, in order."""
        source = random.Random(f"requests {self.seed}")
        ids = range(self.vocab_size)
        while True:
            prompt = source.choices(ids, k=self.prompt_tokens.draw(source))
            yield Plan(prompt, self.output_tokens.draw(source))


def arrivals(rate: float, seed: str) -> Iterator[float]:
    """Seconds from the start at which requests of a Poisson process with `rate` per second are to be sent."""
    source = random.Random(f"arrivals {seed}")
    at = 0.0
    while True:
        at += source.expovariate(rate)
        yield at
