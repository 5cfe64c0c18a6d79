"""Finds tags in text that arrives in pieces, for vocabularies that spell them with ordinary tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence

from frontend_svc.text.parsing.pieces import Piece, Tag


class TagScanner:
    """Text that may be the beginning of a tag is held back until that is decided."""

    def __init__(self, tags: Sequence[str]) -> None:
        """No tag may begin another one; at least one."""
        self._tags = tuple(tags)
        self._pattern = re.compile("|".join(map(re.escape, tags)))
        self._first = frozenset(tag[0] for tag in tags)
        self._longest = max(map(len, tags))
        self._held = ""

    def push(self, text: str) -> list[Piece]:
        """The pieces that are certain."""
        if not self._held and (len(text) == 1 and text not in self._first):
            return [text]
        text = self._held + text
        pieces: list[Piece] = []
        start = 0
        for match in self._pattern.finditer(text):
            if match.start() > start:
                pieces.append(text[start : match.start()])
            pieces.append(Tag(match[0], is_token=False))
            start = match.end()
        certain = self._certain(text, start)
        if certain > start:
            pieces.append(text[start:certain])
        self._held = text[certain:]
        return pieces

    def flush(self) -> list[Piece]:
        """What was held back, when a token's own tag or the end follows."""
        held, self._held = self._held, ""
        return [held] if held else []

    def _certain(self, text: str, start: int) -> int:
        """Where the longest end of `text` that begins a tag starts."""
        for index in range(max(start, len(text) - self._longest + 1), len(text)):
            if text[index] in self._first and any(tag.startswith(text[index:]) for tag in self._tags):
                return index
        return len(text)
