"""The body of POST /v1/responses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from frontend_svc.api.openai import tolerated
from frontend_svc.api.openai.chat_prompt import make_chat_prompt
from frontend_svc.api.openai.forms import JsonObjectFormat, TextFormat, kind_of, read_form, to_json
from frontend_svc.api.openai.schema import Body, GeneratingBody, refuse_unsupported
from frontend_svc.api.responses.conversation import make_messages
from frontend_svc.api.responses.items import AnyItem, unseen_kinds
from frontend_svc.api.responses.tools import AnyChoice, AnyTool, ResponseTools
from frontend_svc.requests.request import ClientRequest, FieldNames, StructuredOutput, Trace, sampling_of
from frontend_svc.templates.conversation import Conversation
from frontend_svc.templates.prompts import ChatPrompts
from frontend_svc.text.parsing.language import Language
from signalbox.errors import InvalidRequestError, UnsupportedError
from signalbox.grammar.form import FormKind
from signalbox.telemetry.attributes import OPERATION_CHAT

ENCRYPTED_REASONING = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"


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
    verbosity: Literal["medium"] | None = None

    def read_form(self) -> StructuredOutput | None:
        """The form that the output has to follow."""
        if isinstance(self.format, SchemaFormat):
            field = "text.format.schema"
            return StructuredOutput(FormKind.JSON_SCHEMA, to_json(self.format.schema_, field), field=field)
        if self.format is None or self.format.type == "text":
            return None
        return StructuredOutput(FormKind.JSON_OBJECT, field="text.format")


class ReasoningOptions(Body):
    """How the model is to think."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None
    """We make none, whatever is asked: reasoning is told as it is."""
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    """An older name of `summary`."""
    context: Any = None


class ResponsesBody(GeneratingBody):
    """The body of POST /v1/responses."""

    input: Annotated[
        Annotated[str, Tag("as string")] | Annotated[list[AnyItem], Tag("as items")],
        Discriminator(lambda value: "as string" if isinstance(value, str) else "as items"),
    ]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    stream: bool | None = None
    text: TextOptions | None = None
    tools: list[AnyTool] | None = None
    tool_choice: AnyChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningOptions | None = None
    include: list[str] | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    """A label only, like `metadata`, `safety_identifier`, `prompt_cache_key` and `client_metadata`."""
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    client_metadata: Any = None
    # Change nothing that the model says:
    max_tool_calls: Any = None
    prompt_cache_options: Any = None
    prompt_cache_retention: Any = None
    # Understood, and refused unless they ask for what happens anyway:
    background: Any = None
    conversation: Any = None
    context_management: Any = None
    moderation: Any = None
    previous_response_id: Any = None
    prompt: Any = None
    service_tier: Any = None
    store: bool | None = None
    stream_options: Any = None
    top_logprobs: Any = None
    truncation: Any = None
    enable_response_messages: Any = None
    previous_input_messages: Any = None
    previous_response: Any = None

    def harmless_values(self) -> dict[str, tuple[Any, ...]]:
        """Fields that we cannot serve, with the values that ask for nothing."""
        nothing: tuple[Any, ...] = (None,)
        return tolerated.COMMON | {
            "background": (None, False),
            "conversation": nothing,
            "context_management": (None, []),
            "moderation": nothing,
            "previous_response_id": nothing,
            "prompt": nothing,
            "service_tier": (None, "auto", "default"),
            "store": (None, False),
            "stream_options": (None, {}, {"include_obfuscation": False}),
            "top_logprobs": (None, 0),
            "truncation": (None, "disabled"),
            "enable_response_messages": (None, False),
            "previous_input_messages": nothing,
            "previous_response": nothing,
        }

    @cached_property
    def response_tools(self) -> ResponseTools:
        """The tools. Raises InvalidRequestError when they do not fit the choice among them."""
        return ResponseTools(
            self.tools or [], self.tool_choice, parallel=self.parallel_tool_calls is not False
        )

    @property
    def wants_encrypted_reasoning(self) -> bool:
        """Reasoning is given in the form that clients carry unread, too."""
        return ENCRYPTED_REASONING in (self.include or ())

    @property
    def warnings(self) -> list[str]:
        """What was left out."""
        return [
            *(f"tools: {kind} is run by no one here and was left out" for kind in self.response_tools.hosted),
            *(
                f"input: the model is not shown the {kind} that a tool gave"
                for kind in unseen_kinds(self.input)
            ),
        ]

    async def read(self, prompts: ChatPrompts, language: Language, trace: Trace) -> ClientRequest:
        """The request of the body, unchecked but for what this endpoint alone can see."""
        refuse_unsupported(self, self.harmless_values())
        if LOGPROBS in (self.include or ()):
            raise UnsupportedError(f"include: {LOGPROBS} is not supported", field="include")
        toolbox = self.response_tools.toolbox
        chat = await make_chat_prompt(
            self.conversation_of_input(), toolbox, self.read_form(), prompts, language
        )
        return ClientRequest(
            prompt=chat.text,
            sampling=sampling_of(
                self.sampling_fields()
                | {"max_tokens": self.max_output_tokens, "structured_output": chat.form}
            ),
            model=self.model or "",
            names=FieldNames(prompt="input", max_tokens="max_output_tokens"),
            add_special_tokens=False,
            turn_end=chat.turn_end,
            id_prefix="resp_",
            priority=self.priority or 0,
            cache_salt=self.cache_salt or "",
            request_id=self.request_id or "",
            keep_stop=bool(self.include_stop_str_in_output),
            with_special_tokens=self.skip_special_tokens is False,
            trace=trace,
            operation=OPERATION_CHAT,
            parsing=chat.parsing,
        )

    def conversation_of_input(self) -> Conversation:
        """What the chat template is told."""
        variables = self._variables()
        return Conversation(
            make_messages(self.instructions, self.input),
            self.response_tools.toolbox.for_template(),
            variables=variables,
            variables_path=dict.fromkeys(variables, "reasoning.effort"),
            regroups=True,
            path="input",
        )

    def read_form(self) -> StructuredOutput | None:
        """The form that the output has to follow, of which a forced call of a tool is one; None: it is free."""
        form = read_form(None, self.structured_outputs)
        if self.text is not None and (chosen := self.text.read_form()) is not None:
            if form is not None:
                raise InvalidRequestError(f"{form.field} does not go with text.format", field=form.field)
            form = chosen
        forced = self.response_tools.toolbox.form()
        if form is not None and forced is not None:
            raise InvalidRequestError(
                f"{form.field} does not go with a forced call of a tool", field=form.field
            )
        return form or forced

    def _variables(self) -> Mapping[str, Any]:
        effort = None if self.reasoning is None else self.reasoning.effort
        return {} if effort is None else {"reasoning_effort": effort}
