"""POST /v1/embeddings."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Literal

import orjson

from frontend_svc.api.openai.completion_body import Prompts, split_prompts
from frontend_svc.api.openai.schema import Body
from frontend_svc.requests.choices import Choices
from frontend_svc.requests.events import Delta, read_vector
from frontend_svc.requests.request import ClientRequest, FieldNames, Pooling, Sampling, Trace
from frontend_svc.requests.sessions.session_table import make_request_id
from signalbox.errors import InvalidRequestError
from signalbox.telemetry.attributes import OPERATION_EMBEDDINGS

MAX_DIMENSIONS = 1 << 20
"""Far above any model's; workers refuse what is above their own."""


class EmbeddingsBody(Body):
    """The body of POST /v1/embeddings."""

    input: Prompts
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    user: str | None = None
    """The client's label for its user, which nothing here reads."""
    priority: int | None = None
    cache_salt: str | None = None

    def read(self, trace: Trace) -> list[ClientRequest]:
        """A request for each input, unchecked but for what this endpoint alone can see."""
        if self.dimensions is not None and not 1 <= self.dimensions <= MAX_DIMENSIONS:
            raise InvalidRequestError(
                f"dimensions must be from 1 to {MAX_DIMENSIONS}, got {self.dimensions}", field="dimensions"
            )
        base = make_request_id("embd-")
        return [
            ClientRequest(
                prompt=prompt,
                sampling=Sampling(),
                model=self.model or "",
                names=FieldNames(prompt="input"),
                request_id=f"{base}:{index}" if index else base,
                priority=self.priority or 0,
                cache_salt=self.cache_salt or "",
                trace=trace,
                operation=OPERATION_EMBEDDINGS,
                pooling=Pooling(dimensions=self.dimensions or 0),
            )
            for index, prompt in enumerate(split_prompts(self.input))
        ]

    def render(self, choices: Choices, outputs: Sequence[Delta]) -> bytes:
        """The body of the answer."""
        encode = _encode_base64 if self.encoding_format == "base64" else read_vector
        data = [
            {"object": "embedding", "index": index, "embedding": encode(delta.vector)}
            for index, delta in enumerate(outputs)
        ]
        count = choices.num_prompt_tokens
        usage = {"prompt_tokens": count, "total_tokens": count}
        model = choices.sessions[0].request.model
        return orjson.dumps({"object": "list", "data": data, "model": model, "usage": usage})


def _encode_base64(values: bytes) -> Any:
    return base64.b64encode(values).decode()
