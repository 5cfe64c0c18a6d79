"""The forms of an output as OpenAI and vLLM name them: response_format, guided_*, structured_outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from frontend_svc.requests.request import FREE_FORMS, StructuredOutput
from signalbox.errors import InvalidRequestError
from signalbox.grammar.form import FormKind

JsonText = Annotated[
    Annotated[str, Tag("as text")] | Annotated[dict[str, Any], Tag("as object")],
    Discriminator(lambda value: "as text" if isinstance(value, str) else "as object"),
]
"""A JSON object, as such or as a string."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TextFormat(_Part):
    """A `response_format` that leaves the output free."""

    type: Literal["text"]


class JsonObjectFormat(_Part):
    """A `response_format` of any JSON object."""

    type: Literal["json_object"]


class NamedSchema(_Part):
    """A schema and its labels."""

    name: str
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None
    """The output follows the schema in any case."""


class JsonSchemaFormat(_Part):
    """A `response_format` of JSON that fits a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


class StructuralTagFormat(BaseModel):
    """vLLM's: structures begun by tags, passed on as they are."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    type: Literal["structural_tag"]


def kind_of(part: Any) -> str | None:
    """Chooses the alternative by its `type`."""
    kind = part.get("type") if isinstance(part, dict) else None
    return f"as {kind}" if isinstance(kind, str) else None


ResponseFormat = Annotated[
    Annotated[TextFormat, Tag("as text")]
    | Annotated[JsonObjectFormat, Tag("as json_object")]
    | Annotated[JsonSchemaFormat, Tag("as json_schema")]
    | Annotated[StructuralTagFormat, Tag("as structural_tag")],
    Discriminator(kind_of),
]


class StructuredOutputs(_Part):
    """vLLM's; exactly one is given."""

    json_: JsonText | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | None = None


def read_form(
    response_format: ResponseFormat | None,
    structured_outputs: StructuredOutputs | None,
    *,
    guided_json: str | dict[str, Any] | None = None,
    guided_regex: str | None = None,
    guided_grammar: str | None = None,
    guided_choice: Sequence[str] | None = None,
) -> StructuredOutput | None:
    """The one form that is asked for; None: the output is free. Raises InvalidRequestError when there are several."""
    vllm = structured_outputs or StructuredOutputs()
    found = [
        _read_response_format(response_format),
        _of_json(guided_json, "guided_json"),
        _of_text(FormKind.REGEX, guided_regex, "guided_regex"),
        _of_text(FormKind.GRAMMAR, guided_grammar, "guided_grammar"),
        _of_choices(guided_choice, "guided_choice"),
        _of_json(vllm.json_, "structured_outputs.json"),
        _of_text(FormKind.REGEX, vllm.regex, "structured_outputs.regex"),
        _of_choices(vllm.choice, "structured_outputs.choice"),
        _of_text(FormKind.GRAMMAR, vllm.grammar, "structured_outputs.grammar"),
        _any_object("structured_outputs.json_object") if vllm.json_object else None,
        _of_text(FormKind.STRUCTURAL_TAG, vllm.structural_tag, "structured_outputs.structural_tag"),
    ]
    forms = [form for form in found if form is not None]
    if len(forms) > 1:
        names = " and ".join(form.field for form in forms)
        raise InvalidRequestError(f"only one form can be followed, got {names}", field=forms[1].field)
    if structured_outputs is not None and not any(form.field.startswith("structured") for form in forms):
        raise InvalidRequestError("structured_outputs names no form", field="structured_outputs")
    return forms[0] if forms else None


def to_json(value: Any, field: str) -> str:
    """Raises InvalidRequestError for what is nested too deeply."""
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise InvalidRequestError(f"{field} cannot be written as JSON: {error}", field=field) from None


def _read_response_format(chosen: ResponseFormat | None) -> StructuredOutput | None:
    match chosen:
        case JsonObjectFormat():
            return _any_object("response_format")
        case JsonSchemaFormat():
            return _of_json(chosen.json_schema.schema_, "response_format.json_schema.schema")
        case StructuralTagFormat():
            tag = to_json(chosen.model_dump(), "response_format")
            return StructuredOutput(FormKind.STRUCTURAL_TAG, tag, field="response_format")
    return None


def _any_object(field: str) -> StructuredOutput:
    return StructuredOutput(FormKind.JSON_OBJECT, field=field)


def _of_json(schema: str | dict[str, Any] | None, field: str) -> StructuredOutput | None:
    text = to_json(schema, field) if isinstance(schema, dict) else schema
    return _of_text(FormKind.JSON_SCHEMA, text, field)


def _of_text(form: FormKind, text: str | None, field: str) -> StructuredOutput | None:
    if text == "":
        raise InvalidRequestError(f"{field} is empty", field=field)
    return None if text is None else StructuredOutput(form, text, field=field, is_free=form in FREE_FORMS)


def _of_choices(choices: Sequence[str] | None, field: str) -> StructuredOutput | None:
    if choices is None:
        return None
    if not choices or "" in choices:
        raise InvalidRequestError(f"{field} needs strings that are not empty", field=field)
    return StructuredOutput(FormKind.CHOICE, choices=tuple(choices), field=field)
