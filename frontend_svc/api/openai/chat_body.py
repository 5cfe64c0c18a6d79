"""The body of POST /v1/chat/completions."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from frontend_svc.api.openai.messages import Message, render_messages
from frontend_svc.api.openai.schema import CommonBody
from frontend_svc.api.openai.tools import Tool, Toolbox, ToolChoice
from frontend_svc.requests.request import ClientRequest, FieldNames, StructuredOutput, Trace
from frontend_svc.text.chat_template import ChatTemplate
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.errors import InvalidRequestError, UnsupportedError
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
    # Understood, and refused unless they ask for what happens anyway:
    functions: Any = None
    function_call: Any = None
    modalities: Any = None
    audio: Any = None
    prediction: Any = None
    reasoning_effort: Any = None
    verbosity: Any = None
    web_search_options: Any = None

    def harmless_values(self) -> dict[str, tuple[Any, ...]]:
        """Fields that we cannot serve, with the values that ask for nothing."""
        nothing: tuple[Any, ...] = (None,)
        return super().harmless_values() | {
            "functions": (None, []),
            "function_call": (None, "none"),
            "modalities": (None, ["text"]),
            "audio": nothing,
            "prediction": nothing,
            "reasoning_effort": nothing,
            "verbosity": nothing,
            "web_search_options": nothing,
        }

    @cached_property
    def toolbox(self) -> Toolbox:
        """The tools. Raises InvalidRequestError when they do not fit the choice among them."""
        parallel = self.parallel_tool_calls is not False
        return Toolbox(self.tools or [], self.tool_choice, parallel=parallel)

    def check(self) -> None:
        """Raises InvalidRequestError or UnsupportedError for what CommonBody refuses, and for tools that do not fit."""
        super().check()
        toolbox = self.toolbox
        if self.parallel_tool_calls is False and toolbox.make_calls() is not None and not toolbox.is_forced:
            raise UnsupportedError(
                "parallel_tool_calls can be false only when tool_choice forces a call",
                field="parallel_tool_calls",
            )
        if None not in (self.max_tokens, self.max_completion_tokens) and (
            self.max_tokens != self.max_completion_tokens
        ):
            raise InvalidRequestError(
                "max_tokens and max_completion_tokens differ", field="max_completion_tokens"
            )

    def read_form(self) -> StructuredOutput | None:
        """The form that the output has to follow, of which a forced call of a tool is one; None: it is free."""
        form, forced = super().read_form(), self.toolbox.form()
        if form is not None and forced is not None:
            raise InvalidRequestError(
                f"{form.field} does not go with a forced call of a tool", field=form.field
            )
        return form or forced

    def read(self, tokenizer: Tokenizer | None, trace: Trace) -> ClientRequest:
        """The request of the body, unchecked but for what this endpoint alone can see."""
        self.check()
        name = "max_completion_tokens" if self.max_completion_tokens is not None else "max_tokens"
        sampling = self.make_sampling(getattr(self, name), self._num_logprobs())
        return ClientRequest(
            prompt=self._render(template_of(tokenizer)),
            sampling=sampling,
            model=self.model or "",
            names=FieldNames(prompt="messages", max_tokens=name),
            add_special_tokens=False,
            id_prefix="chatcmpl-",
            priority=self.priority or 0,
            cache_salt=self.cache_salt or "",
            trace=trace,
            operation=OPERATION_CHAT,
        )

    def _render(self, template: ChatTemplate) -> str:
        tools = self.toolbox.for_template()
        if tools and not template.takes_tools:
            raise UnsupportedError("the model's chat template has no place for tools", field="tools")
        return template.render(render_messages(self.messages), tools)

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


def template_of(tokenizer: Tokenizer | None, field: str = "messages") -> ChatTemplate:
    """Raises UnsupportedError when there is none."""
    if tokenizer is None or tokenizer.chat is None:
        raise UnsupportedError("the model has no chat template", field=field)
    return tokenizer.chat
