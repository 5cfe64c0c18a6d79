"""Bodies of the OpenAI-compatible API. Unknown fields are errors; what we cannot serve is refused by name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from frontend_svc.generate_input import Asked, Sampling, Trace
from signalbox.attributes import OPERATION_CHAT
from signalbox.errors import InvalidRequestError, UnsupportedError

DEFAULT_COMPLETION_TOKENS = 16
"""What OpenAI's completions endpoint makes when max_tokens is not given."""
TAG = "as "
"""Begins the names of alternatives, which pydantic puts among the names of fields."""
_SEED_MASK = 2**64 - 1


class Body(BaseModel):
    """Base of all bodies: exact types, no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class StreamOptions(Body):
    """Of both endpoints."""

    include_usage: bool = False
    include_obfuscation: Literal[False] | None = None


def _kind_of(prompt: Any) -> str:
    """Chooses the one alternative whose errors a client should hear."""
    if isinstance(prompt, str):
        return "as text"
    first = prompt[0] if isinstance(prompt, list) and prompt else None
    if isinstance(first, str):
        return "as texts"
    return "as token lists" if isinstance(first, list) else "as tokens"


Prompt = Annotated[
    Annotated[str, Tag("as text")]
    | Annotated[list[int], Tag("as tokens")]
    | Annotated[list[str], Tag("as texts")]
    | Annotated[list[list[int]], Tag("as token lists")],
    Discriminator(_kind_of),
]
Stop = Annotated[
    Annotated[str, Tag("as string")] | Annotated[list[str], Tag("as list")],
    Discriminator(lambda value: "as string" if isinstance(value, str) else "as list"),
]


class CommonBody(Body):
    """What both endpoints take."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    stop: Stop | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    priority: int | None = None
    cache_salt: str | None = None
    user: str | None = None
    """A label only, like `metadata`."""
    metadata: dict[str, str] | None = None
    # Understood, and refused unless they ask for what happens anyway:
    n: int | None = None
    best_of: int | None = None
    prompt_logprobs: Any = None
    response_format: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_grammar: Any = None
    guided_choice: Any = None
    structured_outputs: Any = None
    store: bool | None = None
    service_tier: str | None = None

    @property
    def wants_usage(self) -> bool:
        """The stream ends with a chunk of usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def refuse_unsupported(self) -> None:
        """Raises UnsupportedError for the first field that asks for what we cannot do."""
        if self.stream_options is not None and not self.stream:
            raise InvalidRequestError("stream_options needs stream to be true", field="stream_options")
        for name, harmless in self.harmless_values().items():
            if getattr(self, name) not in harmless:
                raise UnsupportedError(f"{name} is not supported yet", field=name)

    def harmless_values(self) -> dict[str, tuple[Any, ...]]:
        """Fields that we cannot serve, with the values that ask for nothing."""
        nothing = (None,)
        return {
            "n": (None, 1),
            "best_of": (None, 1),
            "prompt_logprobs": nothing,
            "response_format": (None, {"type": "text"}),
            "guided_json": nothing,
            "guided_regex": nothing,
            "guided_grammar": nothing,
            "guided_choice": nothing,
            "structured_outputs": nothing,
            "store": (None, False),
            "service_tier": (None, "auto", "default"),
        }

    def make_sampling(self, max_tokens: int | None, logprobs: int | None) -> Sampling:
        """The sampling parameters in our words."""
        stop = self.stop or ()
        return Sampling(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            # OpenAI's seeds may be negative.
            seed=None
            if self.seed is None
            else self.seed & _SEED_MASK
            if -(2**63) <= self.seed < 0
            else self.seed,
            max_tokens=max_tokens,
            min_tokens=self.min_tokens,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            ignore_eos=bool(self.ignore_eos),
            logprobs=logprobs,
            repetition_penalty=self.repetition_penalty,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            logit_bias=_read_logit_bias(self.logit_bias or {}),
        )


class CompletionBody(CommonBody):
    """POST /v1/completions."""

    prompt: Prompt
    logprobs: int | None = None
    echo: bool | None = None
    suffix: str | None = None

    def harmless_values(self) -> dict[str, tuple[Any, ...]]:
        """See CommonBody."""
        return super().harmless_values() | {"echo": (None, False), "suffix": (None, "")}

    def read(self, trace: Trace) -> Asked:
        """What is asked, unchecked but for what this endpoint alone can see."""
        self.refuse_unsupported()
        return Asked(
            prompt=_only_prompt(self.prompt),
            sampling=self.make_sampling(self.max_tokens, self.logprobs),
            model=self.model or "",
            default_max_tokens=DEFAULT_COMPLETION_TOKENS,
            id_prefix="cmpl-",
            priority=self.priority or 0,
            cache_salt=self.cache_salt or "",
            trace=trace,
        )


class TextPart(Body):
    """A part of a message."""

    type: Literal["text"]
    text: str


class Message(Body):
    """One message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: (
        Annotated[
            Annotated[str, Tag("as string")] | Annotated[list[TextPart], Tag("as parts")],
            Discriminator(lambda value: "as string" if isinstance(value, str) else "as parts"),
        ]
        | None
    ) = None
    name: str | None = None
    refusal: None = None

    def render(self) -> dict[str, str]:
        """As chat templates expect it."""
        if self.content is None and self.role != "assistant":
            raise InvalidRequestError(f"a message of the {self.role} has no content", field="messages")
        content = self.content or ""
        text = content if isinstance(content, str) else "".join(part.text for part in content)
        return {"role": self.role, "content": text} | ({"name": self.name} if self.name else {})


class ChatBody(CommonBody):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    functions: Any = None
    function_call: Any = None
    modalities: Any = None
    audio: Any = None
    prediction: Any = None
    reasoning_effort: Any = None
    web_search_options: Any = None

    def harmless_values(self) -> dict[str, tuple[Any, ...]]:
        """See CommonBody."""
        nothing: tuple[Any, ...] = (None,)
        return super().harmless_values() | {
            "tools": (None, []),
            "tool_choice": (None, "none", "auto"),
            "parallel_tool_calls": (None, True, False),
            "functions": (None, []),
            "function_call": (None, "none"),
            "modalities": (None, ["text"]),
            "audio": nothing,
            "prediction": nothing,
            "reasoning_effort": nothing,
            "web_search_options": nothing,
        }

    def read(self, prompt: str, trace: Trace) -> Asked:
        """What is asked; `prompt` are the messages as the chat template renders them."""
        self.refuse_unsupported()
        name = "max_completion_tokens" if self.max_completion_tokens is not None else "max_tokens"
        if None not in (self.max_tokens, self.max_completion_tokens) and (
            self.max_tokens != self.max_completion_tokens
        ):
            raise InvalidRequestError(
                "max_tokens and max_completion_tokens differ", field="max_completion_tokens"
            )
        return Asked(
            prompt=prompt,
            sampling=self.make_sampling(getattr(self, name), self._num_logprobs()),
            model=self.model or "",
            prompt_field="messages",
            max_tokens_field=name,
            add_special_tokens=False,
            id_prefix="chatcmpl-",
            priority=self.priority or 0,
            cache_salt=self.cache_salt or "",
            trace=trace,
            operation=OPERATION_CHAT,
        )

    def _num_logprobs(self) -> int | None:
        if not self.logprobs:
            if self.top_logprobs:
                raise InvalidRequestError("top_logprobs needs logprobs to be true", field="top_logprobs")
            return None
        if not 0 <= (self.top_logprobs or 0) <= 20:
            raise InvalidRequestError(
                f"top_logprobs must be from 0 to 20, got {self.top_logprobs}", field="top_logprobs"
            )
        return self.top_logprobs or 0


def _only_prompt(prompt: str | list[int] | list[str] | list[list[int]]) -> str | list[int]:
    """One prompt per request; a list of exactly one is the same."""
    if isinstance(prompt, str):
        return prompt
    first = prompt[0] if prompt else None
    if first is None or isinstance(first, int):
        return prompt  # type: ignore[return-value]
    if len(prompt) > 1:
        raise UnsupportedError(
            "prompt must be one prompt, a list of several is not supported yet", field="prompt"
        )
    return first


def _read_logit_bias(bias: dict[str, float]) -> dict[int, float]:
    try:
        return {int(token_id): value for token_id, value in bias.items()}
    except ValueError:
        raise InvalidRequestError("logit_bias must have token ids as keys", field="logit_bias") from None
