"""The body of POST /v1/chat/completions."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from frontend_svc.api.openai.chat_prompt import make_chat_prompt
from frontend_svc.api.openai.messages import Message, plain_messages
from frontend_svc.api.openai.schema import CommonBody
from frontend_svc.api.openai.tools import Tool, Toolbox, ToolChoice
from frontend_svc.requests.request import ClientRequest, FieldNames, StructuredOutput, Trace
from frontend_svc.templates.conversation import Conversation, content_text
from frontend_svc.templates.prompts import ChatPrompts
from frontend_svc.text.parsing.budget import ReasoningBudget, reasoning_budget
from frontend_svc.text.parsing.language import Language
from signalbox.errors import InvalidRequestError
from signalbox.protocol.sampling import MAX_LOGPROBS
from signalbox.telemetry.attributes import OPERATION_CHAT


class ChatBody(CommonBody):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    documents: list[dict[str, Any]] | None = None
    """What the model is to answer from, for templates that have a place for them."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Variables of the chat template, by name."""
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    """Both stand for a variable of that name, or for what the template has instead."""
    include_reasoning: bool | None = None
    """Whether the answer tells what the model thought. Unset: yes."""
    thinking_token_budget: Annotated[int, Field(ge=0, lt=1 << 32)] | None = None
    """Most tokens of reasoning: behind them its end is forced. Unset: as many as the model wants."""
    add_generation_prompt: bool | None = None
    """Unset: yes, unless the last message is to be continued."""
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    """Whether the tokenizer puts its own tokens around what the template made. Unset: no."""
    echo: bool | None = None
    """Begin the answer with the last message, if that is the assistant's."""
    return_prompt_text: bool | None = None
    """Tell what the chat template made of the conversation."""
    # Understood, and refused unless they ask for what happens anyway:
    functions: Any = None
    function_call: Any = None
    modalities: Any = None
    audio: Any = None
    prediction: Any = None
    verbosity: Any = None
    web_search_options: Any = None
    chat_template: Any = None
    """A template is code, which no client may bring."""

    def harmless_values(self) -> dict[str, tuple[Any, ...]]:
        """Fields that we cannot serve, with the values that ask for nothing."""
        nothing: tuple[Any, ...] = (None,)
        return super().harmless_values() | {
            "functions": (None, []),
            "function_call": (None, "none", "auto"),
            "modalities": (None, ["text"]),
            "audio": nothing,
            "prediction": nothing,
            "verbosity": (None, "medium"),
            "web_search_options": nothing,
            "chat_template": nothing,
        }

    @cached_property
    def toolbox(self) -> Toolbox:
        """The tools. Raises InvalidRequestError when they do not fit the choice among them."""
        parallel = self.parallel_tool_calls is not False
        return Toolbox(self.tools or [], self.tool_choice, parallel=parallel)

    def check(self) -> None:
        """Raises InvalidRequestError or UnsupportedError for what CommonBody refuses, and for tools that do not fit."""
        super().check()
        _ = self.toolbox
        if None not in (self.max_tokens, self.max_completion_tokens) and (
            self.max_tokens != self.max_completion_tokens
        ):
            raise InvalidRequestError(
                "max_tokens and max_completion_tokens differ", field="max_completion_tokens"
            )
        if self.add_generation_prompt and self.continue_final_message:
            raise InvalidRequestError(
                "continue_final_message and add_generation_prompt cannot both be true",
                field="continue_final_message",
            )

    def read_form(self) -> StructuredOutput | None:
        """The form that the output has to follow, of which a forced call of a tool is one; None: it is free."""
        form, forced = super().read_form(), self.toolbox.form()
        if form is not None and forced is not None:
            raise InvalidRequestError(
                f"{form.field} does not go with a forced call of a tool", field=form.field
            )
        return form or forced

    async def read(self, prompts: ChatPrompts, language: Language, trace: Trace) -> ClientRequest:
        """The request of the body, unchecked but for what this endpoint alone can see."""
        self.check()
        name = "max_completion_tokens" if self.max_completion_tokens is not None else "max_tokens"
        sampling = self.make_sampling(getattr(self, name), self._num_logprobs())
        form = sampling.pop("structured_output", None)
        chat = await make_chat_prompt(self.conversation(), self.toolbox, form, prompts, language)
        if chat.form is not None:
            sampling["structured_output"] = chat.form
        return ClientRequest(
            prompt=chat.text,
            sampling=sampling,
            model=self.model or "",
            names=FieldNames(prompt="messages", max_tokens=name),
            add_special_tokens=bool(self.add_special_tokens),
            turn_end=chat.turn_end,
            id_prefix="chatcmpl-",
            priority=self.priority or 0,
            cache_salt=self.cache_salt or "",
            request_id=self.request_id or "",
            keep_stop=bool(self.include_stop_str_in_output),
            with_special_tokens=self.skip_special_tokens is False,
            truncate_prompt_tokens=self.truncate_prompt_tokens,
            truncate_right=self.truncation_side == "right",
            trace=trace,
            operation=OPERATION_CHAT,
            parsing=chat.parsing,
            reasoning=self._reasoning(language, chat.in_reasoning),
        )

    def _reasoning(self, language: Language, within: bool) -> ReasoningBudget | None:
        if self.thinking_token_budget is None:
            return None
        return reasoning_budget(language, self.thinking_token_budget, within, "thinking_token_budget")

    def conversation(self) -> Conversation:
        """What the chat template is told."""
        goes_on = bool(self.continue_final_message)
        named = {"reasoning_effort": self.reasoning_effort, "enable_thinking": self.enable_thinking}
        variables = {name: value for name, value in named.items() if value is not None}
        return Conversation(
            plain_messages(self.messages),
            self.toolbox.for_template(),
            self.documents or (),
            variables=variables | (self.chat_template_kwargs or {}),
            variables_path={
                name: name for name in variables.keys() - (self.chat_template_kwargs or {}).keys()
            },
            add_generation_prompt=not goes_on
            if self.add_generation_prompt is None
            else self.add_generation_prompt,
            continue_final_message=goes_on,
        )

    @property
    def echoed(self) -> str:
        """What the answer begins with; empty: nothing of the request."""
        last = self.messages[-1]
        if not self.echo or last.role != "assistant":
            return ""
        return content_text(last.plain(f"messages[{len(self.messages) - 1}]")["content"])

    def _num_logprobs(self) -> int | None:
        if not self.logprobs:
            if self.top_logprobs:
                raise InvalidRequestError("top_logprobs needs logprobs to be true", field="top_logprobs")
            return None
        if not 0 <= (self.top_logprobs or 0) <= MAX_LOGPROBS:
            raise InvalidRequestError(
                f"top_logprobs must be from 0 to {MAX_LOGPROBS}, got {self.top_logprobs}",
                field="top_logprobs",
            )
        return self.top_logprobs or 0
