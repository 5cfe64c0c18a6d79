"""What a client asks an output to look like."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

MAX_FORM_BYTES = 256 << 10
"""Most bytes of a form in UTF-8, all choices together."""
GAP = r"[\x20\x09\x0A\x0D]{1,32}"
"""The space that may stand between two tokens of JSON: an unbounded gap is where a weak model gets lost."""


class FormError(Exception):
    """The form cannot be followed; the message is a sentence for the client that goes on behind the field's name."""


class FormKind(StrEnum):
    """Named as the fields of StructuredOutput in generation.proto."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    GRAMMAR = "grammar"
    CHOICE = "choice"
    STRUCTURAL_TAG = "structural_tag"


@dataclass(frozen=True)
class Form:
    """One form. Its value is its identity: equal forms share everything that is made of them."""

    kind: FormKind
    text: str = ""
    """Schema or tag as JSON, regular expression or grammar; empty for the other kinds."""
    choices: tuple[str, ...] = ()
    """The strings to choose from, for the kind CHOICE."""

    @property
    def num_bytes(self) -> int:
        """The form's size in UTF-8."""
        return sum(len(text.encode()) for text in (self.text, *self.choices))

    def to_json(self) -> bytes:
        """One line, for another process."""
        return json.dumps([self.kind.value, self.text, self.choices]).encode()

    @classmethod
    def from_json(cls, line: bytes) -> Form:
        """The form that `to_json` wrote."""
        kind, text, choices = json.loads(line)
        return cls(FormKind(kind), text, tuple(choices))
