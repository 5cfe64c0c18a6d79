"""What a detokenizer gives a parser: plain text, and tags."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class Tag:
    """A mark of the model's language: one token of the vocabulary, or found in text where the vocabulary lacks it."""

    text: str
    is_token: bool = True
    """Nothing but this token spells it. False: it was found in text, which may only quote it."""


Piece = str | Tag


class End(Enum):
    """What comes behind the last piece."""

    END = auto()


END = End.END
Item = str | Tag | End
"""One character, a run of text, a tag, or the end."""
