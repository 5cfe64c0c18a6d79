"""Tokens of one request to pieces: text, and the tags that a parser asked for by their tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from frontend_svc.text.detokenizer import make_detokenizer
from frontend_svc.text.parsing.pieces import Piece, Tag
from frontend_svc.text.tokenizer import Tokenizer


class TaggedDetokenizer:
    """Text in front of a tag is certain: no character goes across one."""

    def __init__(self, tokenizer: Tokenizer, tags: Mapping[int, str], kept: Mapping[int, str]) -> None:
        """tags: tokens that are tags; kept: special tokens that are text. Other special tokens are left out."""
        self._detokenizer = make_detokenizer(tokenizer)
        self._tags = tags.keys()
        self._marks: dict[int, Piece] = {token: Tag(text) for token, text in tags.items()} | dict(kept)

    def push(self, token_ids: Sequence[int]) -> list[Piece]:
        """The pieces that became certain with these tokens."""
        if len(token_ids) == 1 and token_ids[0] not in self._marks:
            text = self._detokenizer.push(token_ids)
            return [text] if text else []
        pieces: list[Piece] = []
        start = 0
        for index, token_id in enumerate(token_ids):
            mark = self._marks.get(token_id)
            if mark is None:
                continue
            self._add(pieces, self._detokenizer.push(token_ids[start:index]))
            self._add(pieces, self._detokenizer.break_off())
            pieces.append(mark)
            start = index + 1
        self._add(pieces, self._detokenizer.push(token_ids[start:]))
        return pieces

    def flush(self) -> list[Piece]:
        """What was held back, when no more tokens come."""
        text = self._detokenizer.flush()
        return [text] if text else []

    def is_tag(self, token_id: int) -> bool:
        """Whether the token is one."""
        return token_id in self._tags

    @staticmethod
    def _add(pieces: list[Piece], text: str) -> None:
        if text:
            pieces.append(text)
