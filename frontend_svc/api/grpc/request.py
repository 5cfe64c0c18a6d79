"""Requests of the gRPC face in our words, unchecked but for what this face alone can see."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from copy import deepcopy

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from frontend_svc.api.grpc.call import Context, trace_of
from frontend_svc.requests.request import (
    FREE_FORMS,
    ClientRequest,
    FieldNames,
    Pooling,
    PoolingMode,
    Sampling,
    StructuredOutput,
    sampling_of,
)
from signalbox.errors import InvalidRequestError, UnsupportedError
from signalbox.grammar.form import FormKind
from signalbox.protocol.sampling import read_fields
from signalbox.telemetry.attributes import OPERATION_EMBEDDINGS
from signalbox.v1 import frontend_pb2 as frontend
from signalbox.v1 import generation_pb2 as generation

MAX_CHOICES = 128
MAX_ITEMS = 16_384
"""Items of a list or map in a message; checks of each kind of list are stricter, and come later."""
MAX_NUMBERS = 1 << 20
"""Items of a list of numbers, such as the token ids of a prompt."""
_NUMBERS = {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_INT64}
_NUMBERS |= {FieldDescriptor.CPPTYPE_UINT64, FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE}
SMALL_BYTES = 1 << 16
"""In a message up to this size fields that are not known are looked at one by one."""
MAX_DIMENSIONS = 1 << 20
"""Far above any model's; workers refuse what is above their own."""
_POOLING_MODES: dict[int, PoolingMode | None] = {
    generation.POOLING_MODE_UNSPECIFIED: None,
    generation.POOLING_MODE_MEAN: PoolingMode.MEAN,
    generation.POOLING_MODE_LAST: PoolingMode.LAST,
    generation.POOLING_MODE_CLS: PoolingMode.CLS,
}


def read_generate(request: frontend.GenerateRequest, context: Context) -> tuple[ClientRequest, int]:
    """The request of a client, and for how many choices it is."""
    refuse_unknown_fields(request)
    if request.n > MAX_CHOICES:
        raise InvalidRequestError(f"n must be from 1 to {MAX_CHOICES}, got {request.n}", field="n")
    prompt = request.WhichOneof("prompt")
    if prompt is None:
        raise InvalidRequestError("one of text and token_ids must be given", field="prompt")
    read = ClientRequest(
        prompt=request.text if prompt == "text" else list(request.token_ids.ids),
        sampling=_read_sampling(request.sampling),
        model=request.model,
        names=FieldNames(prompt=prompt, sampling_prefix="sampling."),
        request_id=request.request_id,
        priority=request.priority,
        cache_salt=request.cache_salt,
        trace=trace_of(context),
        clamp_max_tokens=True,
    )
    return read, request.n or 1


def read_embed(request: frontend.EmbedRequest, context: Context) -> list[ClientRequest]:
    """A request for each input."""
    refuse_unknown_fields(request)
    if not request.inputs:
        raise InvalidRequestError("inputs is empty", field="inputs")
    pooling = _read_pooling(request.pooling)
    trace = trace_of(context)
    prompts = []
    for index, prompt in enumerate(request.inputs):
        kind = prompt.WhichOneof("input")
        if kind is None:
            field = f"inputs[{index}]"
            raise InvalidRequestError(f"{field} needs one of text and token_ids", field=field)
        prompts.append(
            ClientRequest(
                prompt=prompt.text if kind == "text" else list(prompt.token_ids.ids),
                sampling=Sampling(),
                model=request.model,
                names=FieldNames(prompt=f"inputs[{index}].{kind}"),
                priority=request.priority,
                cache_salt=request.cache_salt,
                trace=trace,
                operation=OPERATION_EMBEDDINGS,
                pooling=pooling,
            )
        )
    return prompts


def refuse_unknown_fields(message: Message) -> None:
    """A newer client may ask for what we do not know: better no answer than one without it. Refuses lists that are too
    long to be read while others wait, too: a message of 8 MB may have millions of items. Raises UnsupportedError and
    InvalidRequestError."""
    _check_lengths(message, "")
    if message.ByteSize() > SMALL_BYTES:
        known = deepcopy(message)
        known.DiscardUnknownFields()
        if message.ByteSize() - known.ByteSize() > SMALL_BYTES:
            raise UnsupportedError("the message has many fields that are not known here")
    _refuse_unknown(message, "")


def _refuse_unknown(message: Message, path: str) -> None:
    unknown = UnknownFieldSet(message)  # type: ignore[no-untyped-call]
    if len(unknown):
        number = unknown[0].field_number
        raise UnsupportedError(f"the field number {number} is not known here", field=f"{path}{number}")
    for name, part in _messages_in(message, path):
        _refuse_unknown(part, f"{name}.")


def _messages_in(message: Message, path: str) -> Iterator[tuple[str, Message]]:
    """All messages that are values of fields, or items of lists, with their names."""
    for field, value in message.ListFields():
        if isinstance(value, Message):
            yield f"{path}{field.name}", value
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for index, item in enumerate(value):
                yield f"{path}{field.name}[{index}]", item


def _check_lengths(message: Message, path: str) -> None:
    for field, value in message.ListFields():
        if isinstance(value, Sized) and not isinstance(value, str | bytes | Message):
            _check_length(f"{path}{field.name}", value, is_numbers=field.cpp_type in _NUMBERS)
    for name, part in _messages_in(message, path):
        _check_lengths(part, f"{name}.")


def _check_length(name: str, items: Sized, *, is_numbers: bool) -> None:
    most = MAX_NUMBERS if is_numbers else MAX_ITEMS
    if len(items) > most:
        raise InvalidRequestError(f"{name} has {len(items)} items; at most {most} are allowed", field=name)


def _read_sampling(params: generation.SamplingParams) -> Sampling:
    form = _read_form(params.structured_output) if params.HasField("structured_output") else None
    return sampling_of(read_fields(params) | {"structured_output": form})


def _read_form(message: generation.StructuredOutput) -> StructuredOutput:
    name = message.WhichOneof("form")
    if name is None:
        field = "sampling.structured_output"
        raise InvalidRequestError(f"{field} names no form", field=field)
    field = f"sampling.structured_output.{name}"
    value = getattr(message, name)
    if name == "choice":
        choices = tuple(value.values)
        if not choices or "" in choices:
            raise InvalidRequestError(f"{field} needs strings that are not empty", field=field)
        return StructuredOutput(FormKind.CHOICE, choices=choices, field=field)
    if not value:
        raise InvalidRequestError(f"{field} is {'false' if value is False else 'empty'}", field=field)
    form = FormKind(name)
    return StructuredOutput(form, "" if value is True else value, field=field, is_free=form in FREE_FORMS)


def _read_pooling(params: generation.PoolingParams) -> Pooling:
    if params.mode not in _POOLING_MODES:
        raise InvalidRequestError(f"pooling.mode has no value {params.mode}", field="pooling.mode")
    if params.dimensions > MAX_DIMENSIONS:
        field = "pooling.dimensions"
        raise InvalidRequestError(
            f"{field} must be at most {MAX_DIMENSIONS}, got {params.dimensions}", field=field
        )
    return Pooling(_POOLING_MODES[params.mode], params.raw, params.dimensions)
