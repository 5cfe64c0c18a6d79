"""POST /classify: the label of each text, and how likely each label is."""

from __future__ import annotations

from typing import Any

import orjson

from frontend_svc.api.openai.completion_body import Prompts, split_prompts
from frontend_svc.api.pooling.bodies import PoolingBody, usage_of
from frontend_svc.api.pooling.call import Results, answer_head
from frontend_svc.models import Model
from frontend_svc.pooling.model_head import ModelHead
from frontend_svc.requests.events import read_vector
from frontend_svc.requests.request import ClientRequest, Trace
from signalbox.protocol.enums import ModelTask


class ClassifyBody(PoolingBody):
    """The body of POST /classify."""

    input: Prompts

    def read(self, trace: Trace) -> list[ClientRequest]:
        """A request for each input."""
        prompts: list[tuple[str | list[int], str | None, str]] = [
            (prompt, None, "input") for prompt in split_prompts(self.input)
        ]
        return self.make_requests(prompts, ModelTask.CLASSIFY, trace, "classify-")

    def render(self, results: Results, model: Model, head: ModelHead) -> bytes:
        """The body of the answer."""
        data = [_labelled(index, read_vector(vector), head) for index, vector in enumerate(results.vectors)]
        return orjson.dumps(
            answer_head("list", results, model) | {"data": data, "usage": usage_of(results.num_tokens)}
        )


def _labelled(index: int, numbers: list[float], head: ModelHead) -> dict[str, Any]:
    best = max(range(len(numbers)), key=numbers.__getitem__)
    return {"index": index, "label": head.label(best), "probs": numbers, "num_classes": len(numbers)}
