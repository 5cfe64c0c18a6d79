"""Which tokens a request's own fields leave to its output, beside what its form says."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, eq=False)
class TokenRules:
    """`allowed_token_ids` and `bad_words` of one request; they hold whatever its form says."""

    allowed: tuple[int, ...] = ()
    """The output has no other tokens than these, ascending; empty: all."""
    bad_sequences: tuple[tuple[int, ...], ...] = ()
    """Sequences, of at least one token, that the output may not contain."""

    def __bool__(self) -> bool:
        """Whether they forbid anything."""
        return bool(self.allowed or self.bad_sequences)

    @cached_property
    def digest(self) -> bytes:
        """Equal rules have the same."""
        lengths = array("q", (len(self.allowed), *map(len, self.bad_sequences)))
        tokens = array(
            "q", (*self.allowed, *(token for sequence in self.bad_sequences for token in sequence))
        )
        return hashlib.sha256(lengths.tobytes() + tokens.tobytes()).digest()

    def to_json(self) -> bytes:
        """One line, for another process."""
        return json.dumps([self.allowed, self.bad_sequences]).encode()

    @classmethod
    def from_json(cls, line: bytes) -> TokenRules:
        """The rules that `to_json` wrote."""
        allowed, bad_sequences = json.loads(line)
        return cls(tuple(allowed), tuple(map(tuple, bad_sequences)))

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that forbid something."""
        return ("allowed_token_ids",) * bool(self.allowed) + ("bad_words",) * bool(self.bad_sequences)

    @cached_property
    def longest(self) -> int:
        """Tokens of an output's end that decide what may follow it."""
        return max(map(len, self.bad_sequences), default=1) - 1

    def forbidden(self, output: Sequence[int], held: frozenset[int] = frozenset()) -> set[int]:
        """Tokens that may not come after `output`, of which the end is enough: `held` ones, and those that would
        complete a bad sequence. None where they would be all that are allowed: nothing else may come in any case."""
        tail = tuple(output[len(output) - min(self.longest, len(output)) :])
        bad = {
            last for *before, last in self.bad_sequences if tail[len(tail) - len(before) :] == tuple(before)
        }
        bad |= held
        return set() if self.allowed and bad.issuperset(self.allowed) else bad


NO_RULES = TokenRules()
"""Rules that forbid nothing."""
