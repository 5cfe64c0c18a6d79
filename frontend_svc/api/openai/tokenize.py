"""POST /tokenize and POST /detokenize, in vLLM's shapes."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from pydantic import Field

from frontend_svc.api.openai.messages import Message, plain_messages
from frontend_svc.api.openai.schema import Body
from frontend_svc.api.openai.tools import Tool, Toolbox
from frontend_svc.models import Model
from frontend_svc.requests.validation import check_token_ids
from frontend_svc.templates.conversation import Conversation
from frontend_svc.templates.prompts import ChatPrompts
from frontend_svc.text.tokenizer import Tokenizer
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

    async def answer(self, tokenizer: Tokenizer, prompts: ChatPrompts, model: Model) -> bytes:
        """The body of the answer. Raises InvalidRequestError or UnsupportedError."""
        special = self.messages is None if self.add_special_tokens is None else self.add_special_tokens
        tokens = await tokenizer.encode(await self._text(prompts), add_special_tokens=special)
        strings = None
        if self.return_token_strs:
            strings = [tokenizer.fast.id_to_token(token) for token in tokens]
        return orjson.dumps(
            {
                "count": len(tokens),
                "max_model_len": model.max_tokens,
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

    def answer(self, tokenizer: Tokenizer, model: Model) -> bytes:
        """The body of the answer. Raises InvalidRequestError or UnsupportedError."""
        check_token_ids(self.tokens, model.vocab_size, "tokens")
        return orjson.dumps({"prompt": tokenizer.decode(self.tokens)})
