"""POST /pooling: what a model makes of each text, for the whole of it or for each token."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any, Literal

import orjson

from frontend_svc.api.openai.completion_body import Prompts, split_prompts
from frontend_svc.api.openai.embeddings import MAX_DIMENSIONS
from frontend_svc.api.pooling.bodies import PoolingBody, usage_of
from frontend_svc.api.pooling.call import TOKEN_TASKS, Results, answer_head
from frontend_svc.models import Model
from frontend_svc.requests.events import read_vector
from frontend_svc.requests.request import ClientRequest, Trace
from frontend_svc.requests.validation import require_task
from signalbox.errors import InvalidRequestError
from signalbox.protocol.enums import ModelTask

TaskName = Literal["embed", "classify", "score", "token_embed", "token_classify"]
BY_DEFAULT = (ModelTask.TOKEN_EMBED, ModelTask.TOKEN_CLASSIFY, ModelTask.CLASSIFY, ModelTask.EMBED)
"""The first of them that the model serves is done where a request names no task, as with vLLM."""


class PoolingCallBody(PoolingBody):
    """The body of POST /pooling."""

    input: Prompts
    task: TaskName | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    normalize: bool | None = None
    """Whether vectors are scaled to length 1; unset: they are."""

    def read(self, model: Model, trace: Trace) -> list[ClientRequest]:
        """A request for each input. Raises InvalidRequestError or UnsupportedError."""
        if self.dimensions is not None and not 1 <= self.dimensions <= MAX_DIMENSIONS:
            raise InvalidRequestError(
                f"dimensions must be from 1 to {MAX_DIMENSIONS}, got {self.dimensions}", field="dimensions"
            )
        task = require_task(model, *([ModelTask[self.task.upper()]] if self.task else BY_DEFAULT))
        prompts: list[tuple[str | list[int], str | None, str]] = [
            (prompt, None, "input") for prompt in split_prompts(self.input)
        ]
        raw = self.is_raw or self.normalize is False
        return [
            replace(
                request,
                pooling=replace(request.pooling, raw=raw, dimensions=self.dimensions or 0),  # type: ignore[type-var]
            )
            for request in self.make_requests(prompts, task, trace, "pool-")
        ]

    def render(self, requests: list[ClientRequest], results: Results, model: Model) -> bytes:
        """The body of the answer."""
        pooling = requests[0].pooling
        is_matrix = pooling is not None and pooling.task in TOKEN_TASKS
        data = [
            {"index": index, "object": "pooling", "data": self._encoded(vector, length if is_matrix else 0)}
            for index, (vector, length) in enumerate(zip(results.vectors, results.lengths, strict=True))
        ]
        return orjson.dumps(
            answer_head("list", results, model) | {"data": data, "usage": usage_of(results.num_tokens)}
        )

    def _encoded(self, values: bytes, num_rows: int) -> Any:
        """Numbers, in rows unless `num_rows` is 0, or their bytes."""
        if self.encoding_format == "base64":
            return base64.b64encode(values).decode()
        if not num_rows:
            return read_vector(values)
        size = len(values) // num_rows
        return [read_vector(values[start : start + size]) for start in range(0, len(values), size)]
