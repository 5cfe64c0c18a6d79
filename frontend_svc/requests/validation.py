"""Checks what a client asked against the comments of generation.proto, the model and our limits.

Every error names the field as the client's face calls it.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from frontend_svc.config import Limits
from frontend_svc.models import Model
from frontend_svc.requests.request import ClientRequest
from signalbox.errors import (
    ContextLengthError,
    InvalidRequestError,
    RequestTooLargeError,
    UnsupportedError,
)
from signalbox.protocol.enums import ModelTask
from signalbox.protocol.sampling import LOGIT_BIAS, MAX_LOGPROB_TOKEN_IDS, RANGES

MAX_REQUEST_ID_CHARS = 128
MAX_CACHE_SALT_CHARS = 256


def check_request(request: ClientRequest) -> None:
    """Raises InvalidRequestError for what stands beside prompt and sampling parameters."""
    if len(request.request_id) > MAX_REQUEST_ID_CHARS or not request.request_id.isprintable():
        raise InvalidRequestError(
            f"{request.names.request_id} must be at most {MAX_REQUEST_ID_CHARS} printable characters",
            field=request.names.request_id,
        )
    if not -1000 <= request.priority <= 1000:
        raise InvalidRequestError(
            f"{request.names.priority} must be from -1000 to 1000, got {request.priority}",
            field=request.names.priority,
        )
    if len(request.cache_salt) > MAX_CACHE_SALT_CHARS:
        raise InvalidRequestError(
            f"cache_salt must be at most {MAX_CACHE_SALT_CHARS} characters", field="cache_salt"
        )


def check_task(request: ClientRequest, model: Model) -> None:
    """Raises UnsupportedError for what the model is not made for. One that does not say what it is is tried."""
    task = ModelTask.GENERATE if request.pooling is None else request.pooling.task
    require_task(model, task)


def require_task(model: Model, *tasks: ModelTask) -> ModelTask:
    """The first of `tasks` that the model serves, or that it may serve for all that is known of it."""
    for task in tasks:
        if task in model.tasks or not model.tasks:
            return task
    raise UnsupportedError(
        f"the model {model.name!r} does not serve {' or '.join(task.name.lower() for task in tasks)}: "
        f"it serves {', '.join(task.name.lower() for task in model.tasks)}",
        field="model",
    )


def check_sampling(request: ClientRequest, limits: Limits, vocab_size: int) -> None:
    """Raises InvalidRequestError for a sampling parameter outside its bounds."""
    sampling: Mapping[str, Any] = request.sampling
    for name, value in sampling.items():
        if name in RANGES and value not in RANGES[name]:
            field = request.names.max_tokens if name == "max_tokens" else name
            raise _wrong(request, field, f"must be {RANGES[name]}, got {value}")
    _check_strings(request, "stop", limits.max_stop_strings, limits.max_stop_string_chars)
    _check_strings(request, "bad_words", limits.max_bad_words, limits.max_bad_word_chars)
    if any(word.isspace() for word in sampling.get("bad_words", ())):
        raise _wrong(request, "bad_words", "has a string of nothing but spaces")
    _check_stop_token_ids(request, limits, vocab_size)
    _check_logit_bias(request, limits, vocab_size)
    _check_listed_tokens(request, "allowed_token_ids", vocab_size, vocab_size)
    _check_listed_tokens(request, "logprob_token_ids", MAX_LOGPROB_TOKEN_IDS, vocab_size)
    if "logprob_token_ids" in sampling and "logprobs" not in sampling:
        raise _wrong(request, "logprob_token_ids", "needs logprobs to be asked for")


def truncate_prompt(request: ClientRequest, token_ids: Sequence[int], model: Model) -> Sequence[int]:
    """The tokens of the prompt that the client wants to be read. Raises InvalidRequestError for a wrong number."""
    most = request.truncate_prompt_tokens
    if most is None:
        return token_ids
    if most == -1:
        most = max(
            1, model.max_tokens - (request.sampling.get("max_tokens") or request.default_max_tokens or 1)
        )
    if not 1 <= most <= model.max_tokens:
        raise InvalidRequestError(
            f"truncate_prompt_tokens must be -1, or from 1 to {model.max_tokens}, got {most}",
            field="truncate_prompt_tokens",
        )
    return token_ids[:most] if request.truncate_right else token_ids[-most:]


def check_prompt_length(request: ClientRequest, num_tokens: int, limits: Limits) -> None:
    """Raises RequestTooLargeError for a prompt above what this server takes, whatever the model could."""
    check_most_tokens(num_tokens, limits, request.names.prompt)


def check_text_length(
    request: ClientRequest, longest_token: int | None, model: Model, limits: Limits
) -> None:
    """Raises ContextLengthError or RequestTooLargeError, ahead of the tokenizer's work, for a text that has too many
    tokens whatever they are. `longest_token`: characters that one can stand for; None: any number."""
    if (
        longest_token is None
        or not isinstance(request.prompt, str)
        or request.truncate_prompt_tokens is not None
    ):
        return
    least = least_tokens(request.prompt, longest_token)
    check_most_tokens(least, limits, request.names.prompt)
    if least > model.max_tokens:
        raise ContextLengthError(
            f"{_describe_context(model)}, but the prompt has {len(request.prompt)} characters, which are at least "
            f"{least} tokens",
            field=request.names.prompt,
        )


def least_tokens(text: str, longest_token: int) -> int:
    """Tokens that `text` has at least, where one stands for `longest_token` characters at most."""
    return -(-len(text) // longest_token)


def check_prompt_tokens(request: ClientRequest, token_ids: Sequence[int], model: Model) -> bytes:
    """The prompt as int32, little endian."""
    field = request.names.prompt
    if not token_ids:
        raise InvalidRequestError("the prompt is empty", field=field)
    if min(token_ids) < 0 or max(token_ids) >= model.vocab_size:
        wrong = next(token for token in token_ids if not 0 <= token < model.vocab_size)
        raise InvalidRequestError(
            f"the prompt has the token id {wrong}, the model's are 0 to {model.vocab_size - 1}", field=field
        )
    if request.pooling is None and len(token_ids) >= model.max_tokens:
        raise ContextLengthError(
            f"{_describe_context(model)}, but the prompt has {len(token_ids)} tokens, which leaves no room for one "
            "output token",
            field=field,
        )
    if len(token_ids) > model.max_tokens:
        raise ContextLengthError(
            f"{_describe_context(model)}, but the prompt has {len(token_ids)} tokens", field=field
        )
    return array("i", token_ids).tobytes()


def resolve_max_tokens(request: ClientRequest, num_prompt_tokens: int, model: Model) -> int:
    """Most output tokens to make: what was asked, which has to fit behind the prompt unless the face cuts it; else the
    default, as far as it fits."""
    room = model.max_tokens - num_prompt_tokens
    max_tokens = request.sampling.get("max_tokens")
    if max_tokens is not None and max_tokens > (model.max_tokens if request.clamp_max_tokens else room):
        field = request.names.sampling_prefix + request.names.max_tokens
        raise ContextLengthError(
            f"{_describe_context(model)}, but {num_prompt_tokens + max_tokens} tokens are asked for: "
            f"{num_prompt_tokens} in the prompt, and {field} is {max_tokens}",
            field=field,
        )
    wanted = max_tokens or request.default_max_tokens or room
    most = min(wanted, room)
    min_tokens = request.sampling.get("min_tokens", 0)
    if min_tokens > most:
        raise _wrong(
            request,
            "min_tokens",
            f"is {min_tokens}, but at most {most} tokens can be made",
        )
    return most


def check_token_ids(token_ids: Sequence[int], vocab_size: int, field: str) -> None:
    """Raises InvalidRequestError for a token that the model does not have."""
    if token_ids and (min(token_ids) < 0 or max(token_ids) >= vocab_size):
        wrong = next(token_id for token_id in token_ids if not 0 <= token_id < vocab_size)
        raise InvalidRequestError(
            f"{field} has the id {wrong}, the model's are 0 to {vocab_size - 1}", field=field
        )


def check_most_tokens(num_tokens: int, limits: Limits, field: str) -> None:
    """Raises RequestTooLargeError for more than this server takes, whatever the model could."""
    if limits.max_prompt_tokens and num_tokens > limits.max_prompt_tokens:
        raise RequestTooLargeError(
            f"the prompt has {num_tokens} tokens; this server takes {limits.max_prompt_tokens} at most",
            field=field,
        )


def _check_strings(
    request: ClientRequest, name: Literal["stop", "bad_words"], max_strings: int, max_chars: int
) -> None:
    strings = request.sampling.get(name, ())
    if len(strings) > max_strings:
        raise _wrong(request, name, f"has {len(strings)} strings, at most {max_strings} are allowed")
    if any(not string for string in strings):
        raise _wrong(request, name, "has an empty string")
    if any(len(string) > max_chars for string in strings):
        raise _wrong(request, name, f"has a string of more than {max_chars} characters")


def _check_stop_token_ids(request: ClientRequest, limits: Limits, vocab_size: int) -> None:
    token_ids = request.sampling.get("stop_token_ids", ())
    if len(token_ids) > limits.max_stop_token_ids:
        raise _wrong(
            request,
            "stop_token_ids",
            f"has {len(token_ids)} ids, at most {limits.max_stop_token_ids} are allowed",
        )
    check_token_ids(token_ids, vocab_size, request.names.sampling_prefix + "stop_token_ids")


def _check_logit_bias(request: ClientRequest, limits: Limits, vocab_size: int) -> None:
    bias = request.sampling.get("logit_bias", {})
    if len(bias) > limits.max_logit_bias:
        raise _wrong(
            request, "logit_bias", f"has {len(bias)} tokens, at most {limits.max_logit_bias} are allowed"
        )
    for token_id, value in bias.items():
        if not 0 <= token_id < vocab_size:
            raise _wrong(
                request, "logit_bias", f"has the id {token_id}, the model's are 0 to {vocab_size - 1}"
            )
        if value not in LOGIT_BIAS:
            raise _wrong(request, "logit_bias", f"must be {LOGIT_BIAS}, got {value} for token {token_id}")


def _check_listed_tokens(
    request: ClientRequest,
    name: Literal["allowed_token_ids", "logprob_token_ids"],
    max_tokens: int,
    vocab_size: int,
) -> None:
    token_ids = request.sampling.get(name)
    if token_ids is None:
        return
    if not 1 <= len(token_ids) <= max_tokens:
        raise _wrong(request, name, f"has {len(token_ids)} ids; from 1 to {max_tokens} are allowed")
    check_token_ids(token_ids, vocab_size, request.names.sampling_prefix + name)


def _describe_context(model: Model) -> str:
    """The limit, with the words that clients look for."""
    reason = " (as many as the cache holds)" if model.max_request_tokens < model.max_model_len else ""
    return f"this model's maximum context length is {model.max_tokens} tokens{reason}"


def _wrong(request: ClientRequest, name: str, sentence: str) -> InvalidRequestError:
    field = request.names.sampling_prefix + name
    return InvalidRequestError(f"{field} {sentence}", field=field)
