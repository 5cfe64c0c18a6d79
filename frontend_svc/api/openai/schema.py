"""What the bodies of the OpenAI-compatible API have in common. Unknown fields are errors; what we cannot serve is
refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Discriminator, GetCoreSchemaHandler, Tag, create_model
from pydantic_core import core_schema

from frontend_svc.api.openai import tolerated
from frontend_svc.api.openai.bounded_lists import bound_lists
from frontend_svc.api.openai.forms import JsonText, ResponseFormat, StructuredOutputs, read_form
from frontend_svc.api.openai.usage import Usages
from frontend_svc.requests.request import Sampling, StructuredOutput, sampling_of
from signalbox.errors import InvalidRequestError, UnsupportedError
from signalbox.protocol.sampling import TYPES

TAG = "as "
"""Begins the names of alternatives, which pydantic puts among the names of fields."""
MAX_CHOICES = 128
"""Most choices of one prompt, as OpenAI has it."""
_SEED_MASK = 2**64 - 1


class Body(BaseModel):
    """Base of all bodies: exact types, no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler, /
    ) -> core_schema.CoreSchema:
        schema = handler(source)
        bound_lists(schema)
        return schema


def _json_type(kind: Any) -> Any:
    """The JSON type of a sampling parameter."""
    return list[get_args(kind)] if get_origin(kind) is Sequence else kind  # type: ignore[misc]


class StreamOptions(Body):
    """`stream_options` of completions and chat completions."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    """Whether every chunk has the usage so far."""
    include_obfuscation: Literal[False] | None = None


Stop = Annotated[
    Annotated[str, Tag("as string")] | Annotated[list[str], Tag("as list")],
    Discriminator(lambda value: "as string" if isinstance(value, str) else "as list"),
]


IN_ANOTHER_FORM = {"max_tokens", "seed", "stop", "logprobs", "prompt_logprobs", "logit_bias"}
"""Sampling parameters that bodies spell out, since OpenAI writes or names them otherwise."""
AS_THEY_ARE = tuple(name for name in TYPES if name not in IN_ANOTHER_FORM)

if TYPE_CHECKING:

    class SamplingBody(Body):
        """What is read of it by name."""

        temperature: float | None
        top_p: float | None
        logprob_token_ids: list[int] | None

else:
    SamplingBody = create_model(
        "SamplingBody",
        __base__=Body,
        **{name: (_json_type(TYPES[name]) | None, None) for name in AS_THEY_ARE},
        **dict.fromkeys((*tolerated.COMMON, *tolerated.LABELS), (Any, None)),
    )


class GeneratingBody(SamplingBody):
    """What every body takes that has the model write: OpenAI's fields, and vLLM's beside them."""

    seed: int | None = None
    stop: Stop | None = None
    logit_bias: dict[str, float] | None = None
    priority: int | None = None
    cache_salt: str | None = None
    request_id: str | None = None
    """Name of the request, as X-Request-Id gives one."""
    include_stop_str_in_output: bool | None = None
    """Leave the stop string or the token that ended the output in the text."""
    skip_special_tokens: bool | None = None
    """Whether special tokens are left out of the text. Unset: yes."""
    structured_outputs: StructuredOutputs | None = None

    def sampling_fields(self) -> dict[str, Any]:
        """The sampling parameters among them, in our words."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop
        fields = {name: getattr(self, name) for name in AS_THEY_ARE} | {
            "seed": read_seed(self.seed),
            "stop": stop,
            "logit_bias": _read_logit_bias(self.logit_bias or {}),
        }
        if fields["top_k"] == -1:  # vLLM's word for all of them
            fields["top_k"] = 0
        return fields


class CommonBody(GeneratingBody):
    """What completions and chat completions take."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    prompt_logprobs: int | None = None
    response_format: ResponseFormat | None = None
    guided_json: JsonText | None = None
    guided_regex: str | None = None
    guided_grammar: str | None = None
    guided_choice: list[str] | None = None
    user: str | None = None
    """A label only, like `metadata`, `safety_identifier` and `prompt_cache_key`."""
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    return_token_ids: bool | None = None
    """Tell the tokens of prompt and output beside the text."""
    return_tokens_as_token_ids: bool | None = None
    """Write tokens as `token_id:7` in `logprobs`."""
    truncate_prompt_tokens: int | None = None
    """Keep the last so many tokens of the prompt; -1: as many as fit with the output."""
    truncation_side: Literal["left", "right"] | None = None
    """Which side of the prompt is cut. Unset: left."""

    @property
    def usages(self) -> Usages:
        """Where a stream tells token counts."""
        options = self.stream_options or StreamOptions()
        if options.continuous_usage_stats:
            return Usages.ALWAYS
        return Usages.LAST if options.include_usage else Usages.NONE

    @property
    def num_choices(self) -> int:
        """Choices to return for each prompt."""
        return 1 if self.n is None else self.n

    def check(self) -> None:
        """Raises InvalidRequestError, or UnsupportedError for the first field that asks for what we cannot do."""
        if self.stream_options is not None and not self.stream:
            raise InvalidRequestError("stream_options needs stream to be true", field="stream_options")
        options = self.stream_options
        if options is not None and options.continuous_usage_stats and not options.include_usage:
            field = "stream_options.continuous_usage_stats"
            raise InvalidRequestError(f"{field} needs include_usage to be true", field=field)
        if not 1 <= self.num_choices <= MAX_CHOICES:
            raise InvalidRequestError(f"n must be from 1 to {MAX_CHOICES}, got {self.n}", field="n")
        if self.stream and self.prompt_logprobs is not None:
            raise UnsupportedError(
                "prompt_logprobs cannot be streamed, as OpenAI's chunks have no place for them",
                field="prompt_logprobs",
            )
        refuse_unsupported(self, self.harmless_values())

    def harmless_values(self) -> dict[str, tuple[Any, ...]]:
        return tolerated.COMMON

    def make_sampling(self, max_tokens: int | None, logprobs: int | None) -> Sampling:
        """The sampling parameters in our words."""
        own = {
            "max_tokens": max_tokens,
            "logprobs": logprobs,
            "prompt_logprobs": self.prompt_logprobs,
            "structured_output": self.read_form(),
        }
        return sampling_of(self.sampling_fields() | own)

    def read_form(self) -> StructuredOutput | None:
        """The form that the output has to follow."""
        return read_form(
            self.response_format,
            self.structured_outputs,
            guided_json=self.guided_json,
            guided_regex=self.guided_regex,
            guided_grammar=self.guided_grammar,
            guided_choice=self.guided_choice,
        )


def refuse_unsupported(body: Body, harmless_values: dict[str, tuple[Any, ...]]) -> None:
    """Raises UnsupportedError for the first field that asks for more than nothing."""
    for name, harmless in harmless_values.items():
        if getattr(body, name) not in harmless:
            raise UnsupportedError(f"{name} is not supported", field=name)


def read_seed(seed: int | None) -> int | None:
    """OpenAI's seeds may be negative; others that do not fit 64 bits are left for the check of all bounds."""
    return seed & _SEED_MASK if seed is not None and -(2**63) <= seed < 0 else seed


def _read_logit_bias(bias: dict[str, float]) -> dict[int, float]:
    try:
        return {int(token_id): value for token_id, value in bias.items()}
    except ValueError:
        raise InvalidRequestError("logit_bias must have token ids as keys", field="logit_bias") from None
