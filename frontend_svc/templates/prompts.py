"""Makes prompts of conversations: within bounds, and beside the event loop."""

from __future__ import annotations

from collections.abc import Mapping

from frontend_svc.config import Limits
from frontend_svc.templates.bounded import BoundedThreads
from frontend_svc.templates.conversation import Conversation
from frontend_svc.templates.fitting import fit_messages, fit_tools
from frontend_svc.templates.library import ChatTemplates, ReadyTemplate
from frontend_svc.templates.regrouping import regroup
from frontend_svc.templates.switches import EFFORT, THINKING, fit_variables
from signalbox.errors import InvalidRequestError, UnsupportedError

MAX_THREADS = 4
"""Templates hold Python's lock: more at once only take turns."""


class ChatPrompts:
    """The one way from a conversation to a prompt."""

    def __init__(
        self, templates: ChatTemplates | None, limits: Limits, special_tokens: Mapping[str, int] | None = None
    ) -> None:
        """`templates` None: the model has no chat template, or nobody knows the model. `special_tokens` are the
        tokenizer's, by text."""
        self.templates = templates
        self._limits = limits
        self._special_tokens = special_tokens or {}
        self.turn_end: int | None = None
        """Token that ends an assistant's turn in the default template; known when a conversation was rendered. None:
        the template ends turns otherwise."""
        self._threads = BoundedThreads(limits.max_template_s, MAX_THREADS)

    async def render(self, conversation: Conversation) -> str:
        """The prompt. Raises InvalidRequestError for a conversation that is too long, that the template refuses or
        takes too long for; UnsupportedError for what the model's templates have no place for."""
        templates = self._require(conversation)
        count, most = len(conversation.messages), self._limits.max_messages
        if count > most:
            path = conversation.path
            raise InvalidRequestError(f"{path} has {count} messages, at most {most} are allowed", field=path)
        try:
            return await self._threads.run(lambda: self._render(templates, conversation))
        except TimeoutError:
            raise InvalidRequestError(
                f"the model's chat template did not render the messages within {self._limits.max_template_s:g} s",
                field=conversation.path,
            ) from None

    def takes_tools(self, conversation: Conversation) -> bool:
        """Whether the template of this conversation has a place for tools. Raises UnsupportedError as `render`."""
        return self._require(conversation).choose(conversation).template.takes_tools

    @property
    def switches(self) -> list[str]:
        """Which of the variables for thinking the model's templates read, by name."""
        known = self.templates.variables if self.templates is not None else ()
        return [name for name in (*THINKING, EFFORT) if name in known]

    def _require(self, conversation: Conversation) -> ChatTemplates:
        if self.templates is None:
            raise UnsupportedError("the model has no chat template", field=conversation.path)
        return self.templates

    def _render(self, templates: ChatTemplates, conversation: Conversation) -> str:
        ready = templates.choose(conversation)
        self.turn_end = self._special_tokens.get(ready.find_turn_end(self._special_tokens))
        _check_places(ready, conversation)
        messages = conversation.messages
        if conversation.regroups:
            messages = regroup(messages, ready.traits)
        messages = fit_messages(messages, ready.traits, conversation.path)
        template, most, path = ready.template, self._limits.max_prompt_chars, conversation.path
        tools, documents = fit_tools(conversation.tools, ready.traits), conversation.documents
        variables = fit_variables(conversation, template.variables)
        if conversation.continue_final_message:
            return template.continue_final(
                messages, field=path, tools=tools, documents=documents, variables=variables, max_chars=most
            )
        return template.render(
            messages,
            tools,
            documents,
            variables,
            add_generation_prompt=conversation.add_generation_prompt,
            max_chars=most,
            field=path,
        )


def _check_places(ready: ReadyTemplate, conversation: Conversation) -> None:
    """What the client gives must have a place in the template: else it would be lost without a word."""
    template = ready.template
    if conversation.tools and not template.takes_tools:
        raise UnsupportedError("the model's chat template has no place for tools", field="tools")
    if conversation.documents and "documents" not in template.variables:
        raise UnsupportedError("the model's chat template has no place for documents", field="documents")
