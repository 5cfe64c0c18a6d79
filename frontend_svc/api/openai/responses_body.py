"""The body of POST /v1/responses: the part of it that is about text."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from frontend_svc.api.openai.forms import JsonObjectFormat, TextFormat, kind_of, to_json
from frontend_svc.api.openai.schema import Body, refuse_unsupported
from frontend_svc.requests.bound_form import bind_form
from frontend_svc.requests.request import ClientRequest, FieldNames, StructuredOutput, Trace, sampling_of
from frontend_svc.templates.conversation import Conversation
from frontend_svc.templates.prompts import ChatPrompts
from frontend_svc.text.parsing.language import NO_TOOLS, Language
from signalbox.errors import InvalidRequestError
from signalbox.grammar.form import FormKind
from signalbox.telemetry.attributes import OPERATION_CHAT


class InputPart(Body):
    """A part of an input message; `output_text` is a part of our own earlier answer."""

    type: Literal["input_text", "output_text"]
    text: str
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    logprobs: list[Any] | None = None
    """Log-probabilities of an earlier answer; they do not matter for the next one."""


class InputMessage(Body):
    """One message, of the client or of an earlier answer."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[
        Annotated[str, Tag("as string")] | Annotated[list[InputPart], Tag("as parts")],
        Discriminator(lambda value: "as string" if isinstance(value, str) else "as parts"),
    ]
    id: str | None = None
    status: str | None = None

    def render(self) -> dict[str, Any]:
        """The message as chat templates expect it."""
        parts = self.content
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        return {"role": self.role, "content": text}


class SchemaFormat(Body):
    """A `text.format` of JSON that fits a schema."""

    type: Literal["json_schema"]
    name: str
    schema_: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None
    """The output follows the schema in any case."""


class TextOptions(Body):
    """How the text is to be."""

    format: (
        Annotated[
            Annotated[TextFormat, Tag("as text")]
            | Annotated[JsonObjectFormat, Tag("as json_object")]
            | Annotated[SchemaFormat, Tag("as json_schema")],
            Discriminator(kind_of),
        ]
        | None
    ) = None
    verbosity: None = None

    def read_form(self) -> StructuredOutput | None:
        """The form that the output has to follow."""
        if isinstance(self.format, SchemaFormat):
            field = "text.format.schema"
            return StructuredOutput(FormKind.JSON_SCHEMA, to_json(self.format.schema_, field), field=field)
        if self.format is None or self.format.type == "text":
            return None
        return StructuredOutput(FormKind.JSON_OBJECT, field="text.format")


class ResponsesBody(Body):
    """The body of POST /v1/responses."""

    input: Annotated[
        Annotated[str, Tag("as string")] | Annotated[list[InputMessage], Tag("as messages")],
        Discriminator(lambda value: "as string" if isinstance(value, str) else "as messages"),
    ]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stream: bool | None = None
    text: TextOptions | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    """A label only, like `metadata`, `safety_identifier` and `prompt_cache_key`."""
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    # Understood, and refused unless they ask for what happens anyway:
    background: Any = None
    conversation: Any = None
    context_management: Any = None
    include: Any = None
    max_tool_calls: Any = None
    moderation: Any = None
    parallel_tool_calls: bool | None = None
    previous_response_id: Any = None
    prompt: Any = None
    prompt_cache_retention: Any = None
    reasoning: Any = None
    service_tier: Any = None
    store: bool | None = None
    stream_options: Any = None
    tool_choice: Any = None
    tools: Any = None
    top_logprobs: Any = None
    truncation: Any = None

    def harmless_values(self) -> dict[str, tuple[Any, ...]]:
        """Fields that we cannot serve, with the values that ask for nothing."""
        nothing: tuple[Any, ...] = (None,)
        return {
            "background": (None, False),
            "conversation": nothing,
            "context_management": nothing,
            "include": (None, []),
            "max_tool_calls": nothing,
            "moderation": nothing,
            "previous_response_id": nothing,
            "prompt": nothing,
            "prompt_cache_retention": nothing,
            "reasoning": nothing,
            "service_tier": (None, "auto", "default"),
            "store": (None, False),
            "stream_options": (None, {}, {"include_obfuscation": False}),
            "tool_choice": (None, "auto", "none"),
            "tools": (None, []),
            "top_logprobs": (None, 0),
            "truncation": (None, "disabled"),
        }

    async def read(self, prompts: ChatPrompts, language: Language, trace: Trace) -> ClientRequest:
        """The request of the body, unchecked but for what this endpoint alone can see."""
        refuse_unsupported(self, self.harmless_values())
        prompt = await prompts.render(Conversation(self._messages(), path="input"))
        form = None if self.text is None else self.text.read_form()
        return ClientRequest(
            prompt=prompt,
            sampling=sampling_of(
                {
                    "temperature": self.temperature,
                    "top_p": self.top_p,
                    "max_tokens": self.max_output_tokens,
                    "structured_output": None
                    if form is None
                    else bind_form(form, language, language.opens_reasoning(prompt)),
                }
            ),
            model=self.model or "",
            names=FieldNames(prompt="input", max_tokens="max_output_tokens"),
            add_special_tokens=False,
            turn_end=None if language.is_harmony else prompts.turn_end,
            id_prefix="resp_",
            trace=trace,
            operation=OPERATION_CHAT,
            parsing=language.plan(prompt, NO_TOOLS),
        )

    def _messages(self) -> list[dict[str, Any]]:
        if not self.input:
            raise InvalidRequestError("input is empty", field="input")
        first = [] if self.instructions is None else [{"role": "system", "content": self.instructions}]
        if isinstance(self.input, str):
            return [*first, {"role": "user", "content": self.input}]
        return first + [message.render() for message in self.input]
