"""What came of one stream, and how it differs from what an undisturbed ring makes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

from tests.chaos.kinds import Ask

LOGPROB_TOLERANCE = 1e-3
"""Float32 sums in another order (a prompt computed again in one piece) differ by less."""


class Verdict(Enum):
    """Of one stream."""

    RIGHT = "right"
    LOST = "lost"
    """It has no end, or an error for one."""
    DOUBLED = "doubled"
    """It has two ends, or goes on behind its end."""
    CHANGED = "changed"
    """It ended, with another text, tokens, log-probabilities, finish reason or usage."""
    REFUSED = "refused"
    """It was never accepted."""
    EXCUSED = "excused"
    """Its frontend was killed under it."""


@dataclass
class Choice:
    """What one choice has said."""

    text: str = ""
    tokens: list[object] = field(default_factory=list)
    """Of its log-probabilities; ids where the face tells them."""
    logprobs: list[float] = field(default_factory=list)
    finish_reasons: list[str] = field(default_factory=list)
    """One, when all is right."""
    is_overrun: bool = False
    """Something came behind its end."""


@dataclass
class Outcome:
    """One stream; times are seconds of the monotonic clock."""

    ask: Ask
    lane: int
    frontend: str
    started: float
    asked: float = 0.0
    """When its client first tried; earlier than `started` behind refusals."""
    choices: dict[int, Choice] = field(default_factory=dict)
    usage: tuple[int, int] | None = None
    """Prompt and completion tokens."""
    num_ends: int = 0
    """Ends of the whole stream: one, when all is right."""
    error: str = ""
    """What broke it off, or the error that it ended with."""
    was_refused: bool = False
    left: bool = False
    """Its client hung up in the middle."""
    retry_after: str | None = None
    """Of a refusal."""
    flows: bool = False
    """Its first output has come."""
    times: list[float] = field(default_factory=list)
    """When something of the body came."""
    ended: float = 0.0

    def choice(self, index: int) -> Choice:
        """The choice, from its first word on."""
        return self.choices.setdefault(index, Choice())

    def judge(self, expected: Outcome) -> Verdict:
        """Against the same request on an undisturbed ring."""
        if self.was_refused:
            return Verdict.REFUSED
        if self.num_ends > 1 or any(c.is_overrun or len(c.finish_reasons) > 1 for c in self.choices.values()):
            return Verdict.DOUBLED
        if self.left:
            return Verdict.RIGHT if self._agrees_so_far(expected) else Verdict.CHANGED
        if self.error or self.num_ends != 1 or not all(c.finish_reasons for c in self.choices.values()):
            return Verdict.LOST
        return Verdict.CHANGED if self.difference(expected) else Verdict.RIGHT

    def _agrees_so_far(self, expected: Outcome) -> bool:
        """As far as both clients read."""
        text, other = self.choice(0).text, expected.choice(0).text
        return text.startswith(other) or other.startswith(text)

    def difference(self, expected: Outcome) -> str:
        """The first difference, in words; empty: none."""
        if self.left:
            return "" if self._agrees_so_far(expected) else "text before its client hung up"
        if self.choices.keys() != expected.choices.keys():
            return f"choices {sorted(self.choices)} for {sorted(expected.choices)}"
        if self.usage != expected.usage:
            return f"usage {self.usage} for {expected.usage}"
        for index, choice in self.choices.items():
            if found := _difference(choice, expected.choices[index]):
                return f"choice {index}: {found}"
        return ""


def _difference(got: Choice, expected: Choice) -> str:
    if got.text != expected.text:
        pairs = zip(got.text, expected.text, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(got.text), len(expected.text)))
        return f"text from {at}: {got.text[at : at + 40]!r} for {expected.text[at : at + 40]!r}"
    if got.tokens != expected.tokens:
        return f"tokens {got.tokens} for {expected.tokens}"
    if got.finish_reasons != expected.finish_reasons:
        return f"finish reason {got.finish_reasons} for {expected.finish_reasons}"
    far = [abs(a - b) for a, b in zip(got.logprobs, expected.logprobs, strict=False)]
    if len(got.logprobs) != len(expected.logprobs) or max(far, default=0) > LOGPROB_TOLERANCE:
        return f"log-probabilities by {max(far, default=math.inf)}"
    return ""
