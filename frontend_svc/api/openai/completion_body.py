"""The body of POST /v1/completions."""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import Discriminator, Tag

from frontend_svc.api.openai import tolerated
from frontend_svc.api.openai.schema import CommonBody
from frontend_svc.requests.request import ClientRequest, Trace
from frontend_svc.requests.sessions.session_table import make_request_id
from signalbox.errors import InvalidRequestError, UnsupportedError

DEFAULT_MAX_TOKENS = 16
"""What OpenAI's completions endpoint makes when max_tokens is not given."""
MAX_BEST_OF = 20


def _kind_of(prompt: Any) -> str:
    """Chooses the one alternative whose errors a client should hear."""
    if isinstance(prompt, str):
        return "as text"
    first = prompt[0] if isinstance(prompt, list) and prompt else None
    if isinstance(first, str):
        return "as texts"
    return "as token lists" if isinstance(first, list) else "as tokens"


Prompts = Annotated[
    Annotated[str, Tag("as text")]
    | Annotated[list[int], Tag("as tokens")]
    | Annotated[list[str], Tag("as texts")]
    | Annotated[list[list[int]], Tag("as token lists")],
    Discriminator(_kind_of),
]
"""One or several, as text or tokens; embeddings take the same."""


class CompletionBody(CommonBody):
    """The body of POST /v1/completions."""

    prompt: Prompts
    best_of: int | None = None
    logprobs: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    add_special_tokens: bool | None = None
    """Whether the tokenizer puts its own tokens around a prompt of text. Unset: yes."""

    def harmless_values(self) -> dict[str, tuple[Any, ...]]:
        """Fields that we cannot serve, with the values that ask for nothing."""
        return super().harmless_values() | tolerated.COMPLETION

    @property
    def num_sampled(self) -> int:
        """Choices to sample for each prompt, of which the best `num_choices` are returned."""
        return self.num_choices if self.best_of is None else self.best_of

    @property
    def only_prompt(self) -> bool:
        """The prompt is to be echoed with its log-probabilities, and nothing made."""
        return bool(self.echo) and self.max_tokens == 0

    def check(self) -> None:
        """Raises InvalidRequestError or UnsupportedError for what CommonBody refuses, and for `best_of` and `echo`."""
        super().check()
        if self.best_of is not None and not self.num_choices <= self.best_of <= MAX_BEST_OF:
            raise InvalidRequestError(
                f"best_of must be from n = {self.num_choices} to {MAX_BEST_OF}, got {self.best_of}",
                field="best_of",
            )
        if self.stream and self.num_sampled > self.num_choices:
            raise InvalidRequestError("best_of cannot be streamed unless it equals n", field="best_of")
        if self.stream and self.echo and self.logprobs is not None and self.num_choices > 1:
            raise UnsupportedError(
                "echo with logprobs cannot be streamed for more than one choice", field="echo"
            )

    def read(self, trace: Trace) -> list[ClientRequest]:
        """A request for each prompt, unchecked but for what this endpoint alone can see."""
        self.check()
        base = self.request_id or make_request_id("cmpl-")
        sampling = self.make_sampling(1 if self.only_prompt else self.max_tokens, self.logprobs)
        if self.num_sampled > self.num_choices:
            sampling.setdefault("logprobs", 0)  # to know the best
        if self.echo and self.logprobs is not None:
            sampling["prompt_logprobs"] = max(self.logprobs, self.prompt_logprobs or 0)
        return [
            ClientRequest(
                prompt=prompt,
                sampling=sampling,
                model=self.model or "",
                request_id=f"{base}:{index}" if index else base,
                default_max_tokens=DEFAULT_MAX_TOKENS,
                priority=self.priority or 0,
                cache_salt=self.cache_salt or "",
                add_special_tokens=self.add_special_tokens is not False,
                keep_stop=bool(self.include_stop_str_in_output),
                with_special_tokens=self.skip_special_tokens is False,
                truncate_prompt_tokens=self.truncate_prompt_tokens,
                truncate_right=self.truncation_side == "right",
                trace=trace,
            )
            for index, prompt in enumerate(split_prompts(self.prompt))
        ]


def split_prompts(prompts: str | list[int] | list[str] | list[list[int]]) -> list[str | list[int]]:
    """A list, whatever was given; no tokens at all are one empty prompt."""
    if isinstance(prompts, str):
        return [prompts]
    if not prompts or isinstance(prompts[0], int):
        return [cast(list[int], prompts)]
    return cast(list[str | list[int]], prompts)
