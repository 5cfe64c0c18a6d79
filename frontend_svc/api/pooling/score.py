"""POST /score and /v1/score: how well texts fit, one with one, one with many, or many with as many."""

from __future__ import annotations

from typing import Annotated

import orjson
from pydantic import Discriminator, Tag

from frontend_svc.api.pooling.bodies import PoolingBody, usage_of
from frontend_svc.api.pooling.call import Results, answer_head
from frontend_svc.api.pooling.pairs import Pair, PairOptions
from frontend_svc.models import Model
from signalbox.errors import InvalidRequestError

Texts = Annotated[
    Annotated[str, Tag("as text")] | Annotated[list[str], Tag("as texts")],
    Discriminator(lambda value: "as text" if isinstance(value, str) else "as texts"),
]
FIRST, SECOND = ("text_1", "data_1", "queries"), ("text_2", "data_2", "documents", "items")
"""Names that vLLM's versions have for the same two fields."""


class ScoreBody(PoolingBody):
    """The body of these endpoints."""

    text_1: Texts | None = None
    text_2: Texts | None = None
    data_1: Texts | None = None
    data_2: Texts | None = None
    queries: Texts | None = None
    documents: Texts | None = None
    items: Texts | None = None
    instruction: str | None = None
    """What a text is judged by, for models that are told."""

    @property
    def options(self) -> PairOptions:
        """How pairs are read."""
        return PairOptions(self.instruction)

    def pairs(self) -> list[Pair]:
        """The pairs. Raises InvalidRequestError for lists that do not fit."""
        first_name, firsts = self._texts(FIRST)
        second_name, seconds = self._texts(SECOND)
        if len(firsts) not in (1, len(seconds)):
            raise InvalidRequestError(
                f"{first_name} must have one text or as many as {second_name}: "
                f"they have {len(firsts)} and {len(seconds)}",
                field=first_name,
            )
        return [
            Pair(firsts[index % len(firsts)], text, first_name, f"{second_name}[{index}]")
            for index, text in enumerate(seconds)
        ]

    def _texts(self, names: tuple[str, ...]) -> tuple[str, list[str]]:
        """The one field of `names` that is set, and its texts."""
        found: list[tuple[str, Texts]] = [
            (name, value) for name in names if (value := getattr(self, name)) is not None
        ]
        if len(found) != 1:
            raise InvalidRequestError(f"one of {', '.join(names)} must be set", field=names[0])
        name, value = found[0]
        texts = [value] if isinstance(value, str) else value
        if not texts:
            raise InvalidRequestError(f"{name} is empty", field=name)
        return name, texts

    def render(self, scores: list[float], results: Results, model: Model) -> bytes:
        """The body of the answer."""
        data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(scores)]
        return orjson.dumps(
            answer_head("list", results, model) | {"data": data, "usage": usage_of(results.num_tokens)}
        )
