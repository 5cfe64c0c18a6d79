"""POST /tokenize and POST /detokenize, in vLLM's shapes."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import orjson
from pydantic import Field

from frontend_svc.api.openai.messages import Message, plain_messages
from frontend_svc.api.openai.schema import Body
from frontend_svc.api.openai.tools import Tool, Toolbox
from frontend_svc.requests.token_calls import TokenCalls
from frontend_svc.templates.conversation import Conversation
from frontend_svc.templates.prompts import ChatPrompts
from frontend_svc.text.tokenizer import LONG_TOKENS, Tokenizer
from signalbox.errors import InvalidRequestError


class TokenizeBody(Body):
    """POST /tokenize: of a text, or of messages as the chat template renders them."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Field(min_length=1)] | None = None
    tools: list[Tool] | None = None
    add_special_tokens: bool | None = None
    """Unset: yes for a prompt, no for messages, whose template puts them."""
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool = False

    async def answer(self, tokenizer: Tokenizer, prompts: ChatPrompts, calls: TokenCalls) -> bytes:
        """The body of the answer. Raises what rendering and TokenCalls raise."""
        special = self.messages is None if self.add_special_tokens is None else self.add_special_tokens
        field = "prompt" if self.messages is None else "messages"
        tokens = await calls.tokenize(await self._text(prompts), field, add_special_tokens=special)
        if len(tokens) < LONG_TOKENS:
            return self._render(tokens, tokenizer, calls.model.max_tokens)
        return await asyncio.to_thread(self._render, tokens, tokenizer, calls.model.max_tokens)

    def _render(self, tokens: list[int], tokenizer: Tokenizer, max_model_len: int) -> bytes:
        strings = None
        if self.return_token_strs:
            strings = [tokenizer.fast.id_to_token(token) for token in tokens]
        return orjson.dumps(
            {
                "count": len(tokens),
                "max_model_len": max_model_len,
                "tokens": tokens,
                "token_strs": strings,
            }
        )

    async def _text(self, prompts: ChatPrompts) -> str:
        if (self.prompt is None) == (self.messages is None):
            raise InvalidRequestError("one of prompt and messages must be given", field="prompt")
        if self.messages is None:
            if self.tools is not None:
                raise InvalidRequestError("tools go with messages only", field="tools")
            assert self.prompt is not None
            return self.prompt
        return await prompts.render(
            Conversation(
                plain_messages(self.messages),
                Toolbox(self.tools or [], None, parallel=True).for_template(),
                variables=self.chat_template_kwargs or {},
                add_generation_prompt=self.add_generation_prompt and not self.continue_final_message,
                continue_final_message=self.continue_final_message,
            )
        )


class DetokenizeBody(Body):
    """The body of POST /detokenize."""

    model: str | None = None
    tokens: list[int]

    async def answer(self, calls: TokenCalls) -> bytes:
        """The body of the answer. Raises what TokenCalls raise."""
        return orjson.dumps({"prompt": await calls.detokenize(self.tokens, "tokens")})
