"""How well texts fit: by a model that reads both at once, or by the vectors of each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from starlette.requests import Request

from frontend_svc.api.http.call import trace_of
from frontend_svc.api.pooling.bodies import PoolingBody
from frontend_svc.api.pooling.call import Results, check_count, run_requests
from frontend_svc.pooling.cosine import dot
from frontend_svc.pooling.parts import cut_text
from frontend_svc.requests.events import read_vector
from frontend_svc.requests.validation import require_task
from frontend_svc.services import Services
from frontend_svc.text.tokenizer import LONG_TEXT_CHARS
from signalbox.errors import InvalidRequestError, UnsupportedError
from signalbox.protocol.enums import ModelTask

PRODUCTS_AT_ONCE = 16
"""Products of vectors between two turns of others: less than a millisecond."""


class Pair(NamedTuple):
    """Two texts, and the fields that they came in."""

    first: str
    second: str
    first_name: str
    second_name: str


Prompts = list[tuple[str | list[int], str | None, str]]


class PairOptions(NamedTuple):
    """How pairs are read."""

    instruction: str | None = None
    """What to judge by; None: as the model has it."""
    max_second_tokens: int | None = None
    """Tokens that are kept of each second text; None: all."""


class PairCall:
    """One call that asks how well texts fit."""

    def __init__(
        self, services: Services, request: Request, body: PoolingBody, options: PairOptions, prefix: str
    ) -> None:
        """`prefix` begins the names of requests that the client did not name."""
        self._services = services
        self._request = request
        self._body = body
        self._options = options
        self._prefix = prefix

    async def score(self, pairs: Sequence[Pair]) -> tuple[list[float], Results]:
        """The score of each pair, and the results that they are made of."""
        services = self._services
        with services.metrics.counting_refusals():
            model = services.processor.model_of(self._body.model or "")
            task = require_task(model, ModelTask.SCORE, ModelTask.EMBED)
            check_count(services, len(pairs), _field_of(pairs))
            services.processor.require_tokenizer(pairs[0].first_name)
            check_chars(pairs, services.settings.limits.max_prompt_chars)
            self._check_options(task)
        if task == ModelTask.EMBED:
            return await self._by_vectors(pairs)
        results = await self._run(task, await self._pair_prompts(pairs), pairs)
        return [read_vector(vector)[0] for vector in results.vectors], results

    def _check_options(self, task: ModelTask) -> None:
        most = self._options.max_second_tokens
        if most is not None and most < 1:
            field = "max_tokens_per_doc"
            raise InvalidRequestError(f"{field} must be at least 1, got {most}", field=field)
        is_told = task == ModelTask.SCORE and self._services.head.pair_template is not None
        if self._options.instruction is not None and not is_told:
            raise UnsupportedError("this model has no place for an instruction", field="instruction")

    async def _run(self, task: ModelTask, prompts: Prompts, pairs: Sequence[Pair]) -> Results:
        is_pair = prompts[0][1] is not None
        requests = self._body.make_requests(
            prompts,
            task,
            trace_of(self._request),
            self._prefix,
            max_pair_tokens=self._options.max_second_tokens if is_pair else None,
        )
        return await run_requests(self._services, self._request, requests, _field_of(pairs))

    async def _pair_prompts(self, pairs: Sequence[Pair]) -> Prompts:
        """What a model reads that reads both texts at once."""
        template, prompts = self._services.head.pair_template, Prompts()
        for pair in pairs:
            if template is None:
                prompts.append((pair.first, pair.second, pair.second_name))
            else:
                text = template.render(pair.first, await self._cut(pair.second), self._options.instruction)
                prompts.append((text, None, pair.second_name))
        return prompts

    async def _by_vectors(self, pairs: Sequence[Pair]) -> tuple[list[float], Results]:
        """Cosines; each text is read once, however many pairs it is in."""
        numbers: dict[str, int] = {}
        names: list[str] = []
        places = []
        for pair in pairs:
            second = await self._cut(pair.second)
            for text, name in ((pair.first, pair.first_name), (second, pair.second_name)):
                if text not in numbers:
                    numbers[text] = len(numbers)
                    names.append(name)
            places.append((numbers[pair.first], numbers[second]))
        prompts: Prompts = [(text, None, name) for text, name in zip(numbers, names, strict=True)]
        results = await self._run(ModelTask.EMBED, prompts, pairs)
        scores = []
        for index, (first, other) in enumerate(places):
            if index % PRODUCTS_AT_ONCE == 0:
                await asyncio.sleep(0)
            scores.append(dot(results.vectors[first], results.vectors[other]))
        return scores, results

    async def _cut(self, text: str) -> str:
        most = self._options.max_second_tokens
        if most is None:
            return text
        fast = self._services.processor.require_tokenizer("max_tokens_per_doc").fast
        if len(text) >= LONG_TEXT_CHARS:
            return await asyncio.to_thread(cut_text, fast, text, most)
        await asyncio.sleep(0)  # many of them take their time
        return cut_text(fast, text, most)


def check_chars(pairs: Sequence[Pair], most: int) -> None:
    """Raises InvalidRequestError for more characters than are tokenized for one call: a long text that is in many pairs
    is read as often."""
    num_chars = sum(len(pair.first) + len(pair.second) for pair in pairs)
    if num_chars > most:
        raise InvalidRequestError(
            f"the pairs have {num_chars} characters together; this server takes {most} at most",
            field=_field_of(pairs),
        )


def _field_of(pairs: Sequence[Pair]) -> str:
    """The field that holds the second texts."""
    return pairs[0].second_name.partition("[")[0] if pairs else "documents"
