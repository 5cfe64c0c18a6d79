"""POST /v2/embed: vectors in Cohere's shape."""

from __future__ import annotations

import base64
from typing import Any, Literal

import orjson

from frontend_svc.api.openai.embeddings import MAX_DIMENSIONS
from frontend_svc.api.openai.schema import Body
from frontend_svc.api.pooling.call import Results
from frontend_svc.requests.events import read_vector
from frontend_svc.requests.request import ClientRequest, FieldNames, Pooling, Sampling, Trace
from frontend_svc.requests.sessions.session_table import make_request_id
from signalbox.errors import InvalidRequestError
from signalbox.telemetry.attributes import OPERATION_EMBEDDINGS


class EmbedBody(Body):
    """The body of POST /v2/embed."""

    model: str | None = None
    texts: list[str]
    input_type: Literal["search_document", "search_query", "classification", "clustering"] | None = None
    """What the vectors are for, which makes no difference here: a model that wants a prefix is sent it in its texts."""
    embedding_types: list[Literal["float", "base64"]] | None = None
    output_dimension: int | None = None
    truncate: Literal["END", "NONE"] | None = None
    """Whether what is longer than the model takes loses its end; unset: yes, as with Cohere."""
    max_tokens: int | None = None
    """Tokens that are kept of each text; unset: as many as the model takes."""
    priority: int | None = None

    def read(self, trace: Trace) -> list[ClientRequest]:
        """A request for each text."""
        most = self.output_dimension
        if most is not None and not 1 <= most <= MAX_DIMENSIONS:
            raise InvalidRequestError(
                f"output_dimension must be from 1 to {MAX_DIMENSIONS}, got {most}", field="output_dimension"
            )
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidRequestError(
                f"max_tokens must be at least 1, got {self.max_tokens}", field="max_tokens"
            )
        base = make_request_id("embd-")
        return [
            ClientRequest(
                prompt=text,
                sampling=Sampling(),
                model=self.model or "",
                names=FieldNames(prompt=f"texts[{index}]"),
                request_id=f"{base}:{index}" if index else base,
                priority=self.priority or 0,
                trace=trace,
                operation=OPERATION_EMBEDDINGS,
                pooling=Pooling(dimensions=most or 0),
                truncate_prompt_tokens=None if self.truncate == "NONE" else self.max_tokens or -1,
            )
            for index, text in enumerate(self.texts)
        ]

    def render(self, results: Results) -> bytes:
        """The body of the answer."""
        encoders: dict[str, Any] = {
            "float": read_vector,
            "base64": lambda values: base64.b64encode(values).decode(),
        }
        kinds = self.embedding_types or ["float"]
        return orjson.dumps(
            {
                "id": results.call_id,
                "embeddings": {
                    kind: [encoders[kind](vector) for vector in results.vectors] for kind in kinds
                },
                "texts": self.texts,
                "meta": {
                    "api_version": {"version": "2"},
                    "billed_units": {"input_tokens": results.num_tokens},
                },
                "response_type": "embeddings_by_type",
            }
        )
