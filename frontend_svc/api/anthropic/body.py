"""The bodies of POST /v1/messages and of POST /v1/messages/count_tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field

from frontend_svc.api.anthropic.blocks import InputMessage, ReferenceBlock, ResultBlock, System, UnseenBlock
from frontend_svc.api.anthropic.context_edits import ContextManagement
from frontend_svc.api.anthropic.conversation import make_history, result_blocks
from frontend_svc.api.anthropic.tools import AnyTool, ClientTool, ToolChoice, hosted_types, make_toolbox
from frontend_svc.api.openai.chat_prompt import make_chat_prompt
from frontend_svc.api.openai.forms import to_json
from frontend_svc.api.openai.schema import Body, refuse_unsupported
from frontend_svc.api.openai.tools import Toolbox
from frontend_svc.requests.request import ClientRequest, FieldNames, StructuredOutput, Trace, sampling_of
from frontend_svc.templates.conversation import Conversation
from frontend_svc.templates.prompts import ChatPrompts
from frontend_svc.text.parsing.budget import ReasoningBudget, reasoning_budget
from frontend_svc.text.parsing.language import Language
from signalbox.errors import InvalidRequestError, UnsupportedError
from signalbox.grammar.form import FormKind
from signalbox.telemetry.attributes import OPERATION_CHAT

MAX_EFFORT = "high"
"""The most that templates know."""


class Thinking(Body):
    """Whether and how much the model is to think."""

    type: Literal["enabled", "adaptive", "disabled", "between_tools"]
    budget_tokens: Annotated[int, Field(ge=1)] | None = None
    """Most tokens of thinking: behind them its end is forced, with models for which that can be done."""
    display: str | None = None
    """omitted: only the form that clients carry unread is told. With all others thoughts are told as they are."""


class OutputFormat(Body):
    """JSON that fits a schema."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Body):
    """How the answer is to be."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None
    task_budget: Any = None
    """Not told: models know of none."""


class CountBody(Body):
    """The body of POST /v1/messages/count_tokens: what a prompt is made of."""

    messages: Annotated[list[InputMessage], Field(min_length=1)]
    model: str | None = None
    system: System | None = None
    tools: list[AnyTool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    context_management: ContextManagement | None = None
    """What the history is to lose on the way."""
    # Change nothing that the model says:
    betas: Any = None
    billing_policy: Any = None
    fallback_credit_token: Any = None
    cache_control: Any = None
    diagnostics: Any = None
    fallbacks: Any = None
    inference_geo: Any = None
    output_format: OutputFormat | None = None
    """An older place of `output_config.format`."""
    speed: Any = None
    user_profile_id: Any = None
    workspace_id: Any = None
    # Understood, and refused unless they ask for what happens anyway:
    container: Any = None
    mcp_servers: Any = None
    thread: Any = None
    compaction: Any = None

    @cached_property
    def toolbox(self) -> Toolbox:
        """The tools. Raises InvalidRequestError when they do not fit the choice among them."""
        found = {part.tool_name for part in self._results if isinstance(part, ReferenceBlock)}
        return make_toolbox(self.tools or [], self.tool_choice, found)

    @cached_property
    def _results(self) -> list[ResultBlock]:
        return result_blocks(self.messages)

    @property
    def warnings(self) -> list[str]:
        """What was left out."""
        unseen = sorted({part.type for part in self._results if isinstance(part, UnseenBlock)})
        return [
            *(
                f"tools: {kind} is run by no one here and was left out"
                for kind in hosted_types(self.tools or [])
            ),
            *(f"messages: the model is not shown the {kind} that a tool gave" for kind in unseen),
            *(
                f"context_management: {kind} is not done here, and the history stays as it is"
                for kind in (self.context_management.unknown if self.context_management else ())
            ),
        ]

    @property
    def hides_thinking(self) -> bool:
        """Nothing of what is thought is told: the model was to think nothing."""
        return self.thinking is not None and self.thinking.type == "disabled"

    @property
    def omits_thinking(self) -> bool:
        """Thinking is told in the form alone that clients carry unread."""
        return self.thinking is not None and self.thinking.display == "omitted"

    def conversation(self, messages: Sequence[InputMessage] | None = None) -> Conversation:
        """What the chat template is told; it goes on with a last message of the assistant. `messages` stand for those
        of the body."""
        nothing: tuple[Any, ...] = (None,)
        refused = dict.fromkeys(("container", "thread", "compaction"), nothing)
        refuse_unsupported(self, refused | {"mcp_servers": (None, [])})
        tools = {tool.name: tool for tool in self.tools or () if isinstance(tool, ClientTool)}
        told = make_history(self.system, messages or self.messages, tools).messages
        goes_on = told[-1]["role"] == "assistant" and "tool_calls" not in told[-1]
        return Conversation(
            told,
            self.toolbox.for_template(),
            wishes=self._wishes(),
            add_generation_prompt=not goes_on,
            continue_final_message=goes_on,
            regroups=True,
        )

    def read_form(self) -> StructuredOutput | None:
        """The form that the output has to follow, of which a forced call of a tool is one; None: it is free."""
        forced = self.toolbox.form()
        chosen = self.output_format or (self.output_config.format if self.output_config else None)
        if chosen is None:
            return forced
        field = "output_format.schema" if self.output_format else "output_config.format.schema"
        if forced is not None:
            raise InvalidRequestError(f"{field} does not go with a forced call of a tool", field=field)
        return StructuredOutput(FormKind.JSON_SCHEMA, to_json(chosen.schema_, field), field=field)

    def _wishes(self) -> Mapping[str, Any]:
        wishes: dict[str, Any] = {}
        if self.thinking is not None:
            wishes["enable_thinking"] = self.thinking.type != "disabled"
        if self.output_config is not None and (effort := self.output_config.effort):
            wishes["reasoning_effort"] = MAX_EFFORT if effort in ("xhigh", "max") else effort
        return wishes


class MessagesBody(CountBody):
    """The body of POST /v1/messages."""

    max_tokens: Annotated[int, Field(ge=1)]
    """Most output tokens; what has no room behind the prompt is not asked for."""
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    metadata: Any = None
    """A label only."""
    service_tier: Literal["auto", "standard_only"] | None = None

    async def read(
        self,
        prompts: ChatPrompts,
        language: Language,
        trace: Trace,
        messages: Sequence[InputMessage] | None = None,
    ) -> ClientRequest:
        """The request of the body, unchecked but for what this endpoint alone can see. `messages` stand for those of
        the body."""
        form = self.read_form()
        chat = await make_chat_prompt(self.conversation(messages), self.toolbox, form, prompts, language)
        return ClientRequest(
            prompt=chat.text,
            sampling=sampling_of(
                {
                    "temperature": self.temperature,
                    "top_p": self.top_p,
                    "top_k": self.top_k,
                    "stop": self.stop_sequences or None,
                    "structured_output": chat.form,
                }
            ),
            model=self.model or "",
            names=FieldNames(prompt="messages"),
            default_max_tokens=self.max_tokens,
            add_special_tokens=False,
            turn_end=chat.turn_end,
            id_prefix="msg_",
            trace=trace,
            operation=OPERATION_CHAT,
            parsing=chat.parsing,
            reasoning=self._reasoning(language, chat.in_reasoning),
        )

    def _reasoning(self, language: Language, within: bool) -> ReasoningBudget | None:
        """Agents send a budget to whatever model there is: where it cannot be kept, there is none."""
        thinking = self.thinking
        if thinking is None or thinking.type != "enabled" or thinking.budget_tokens is None:
            return None
        try:
            return reasoning_budget(language, thinking.budget_tokens, within, "thinking.budget_tokens")
        except UnsupportedError:
            return None
