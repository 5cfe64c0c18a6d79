"""POST /rerank, /v1/rerank and /v2/rerank: documents by how well they answer a query, as Jina and Cohere have it."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from pydantic import Discriminator, Tag

from frontend_svc.api.openai.schema import Body
from frontend_svc.api.pooling.bodies import PoolingBody, usage_of
from frontend_svc.api.pooling.call import Results
from frontend_svc.api.pooling.pairs import Pair, PairOptions
from frontend_svc.models import Model
from signalbox.errors import InvalidRequestError, UnsupportedError


class Document(Body):
    """A document as Jina and Cohere's first version have it."""

    text: str


AnyDocument = Annotated[
    Annotated[str, Tag("as text")] | Annotated[Document, Tag("as document")],
    Discriminator(lambda value: "as text" if isinstance(value, str) else "as document"),
]


class RerankBody(PoolingBody):
    """The body of these endpoints."""

    query: str
    documents: list[AnyDocument]
    top_n: int | None = None
    """Most documents in the answer; unset or 0: all."""
    return_documents: bool | None = None
    """Whether the answer repeats the documents; unset: yes, as vLLM does."""
    max_tokens_per_doc: int | None = None
    """Tokens that are kept of each document; unset: all."""
    instruction: str | None = None
    """What a document is judged by, for models that are told."""
    rank_fields: list[str] | None = None
    max_chunks_per_doc: None = None

    @property
    def options(self) -> PairOptions:
        """How pairs are read."""
        return PairOptions(self.instruction, self.max_tokens_per_doc)

    @property
    def texts(self) -> list[str]:
        """The documents."""
        return [each if isinstance(each, str) else each.text for each in self.documents]

    def pairs(self) -> list[Pair]:
        """The query with each document. Raises InvalidRequestError or UnsupportedError."""
        if self.top_n is not None and self.top_n < 0:
            raise InvalidRequestError(f"top_n must be at least 0, got {self.top_n}", field="top_n")
        if self.rank_fields not in (None, ["text"]):
            raise UnsupportedError("documents are ranked by their text", field="rank_fields")
        if not self.documents:
            raise InvalidRequestError("documents is empty", field="documents")
        return [
            Pair(self.query, text, "query", f"documents[{index}]") for index, text in enumerate(self.texts)
        ]

    def render(self, scores: list[float], results: Results, model: Model) -> bytes:
        """The body of the answer: the best first."""
        texts = self.texts
        order = sorted(range(len(scores)), key=lambda index: -scores[index])[: self.top_n or None]
        return orjson.dumps(
            {
                "id": results.call_id,
                "model": model.name,
                "usage": usage_of(results.num_tokens),
                "results": [self._result(index, texts[index], scores[index]) for index in order],
            }
        )

    def _result(self, index: int, text: str, score: float) -> dict[str, Any]:
        document = {} if self.return_documents is False else {"document": {"text": text}}
        return {"index": index, "relevance_score": score} | document
