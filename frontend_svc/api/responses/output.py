"""The items of an answer, made of the blocks of an output."""

from __future__ import annotations

import secrets
from typing import Any

import orjson

from frontend_svc.api.responses.tools import CUSTOM_INPUT, Origin, ResponseTools
from frontend_svc.text.opaque_reasoning import pack_reasoning
from frontend_svc.text.output_blocks import BlockKind, OutputBlock

_PREFIXES = {BlockKind.REASONING: "rs_", BlockKind.TEXT: "msg_"}


class OutputItem:
    """One item, as it looks at the beginning of its block and at its end."""

    def __init__(self, block: OutputBlock, tools: ResponseTools, *, packs_reasoning: bool) -> None:
        """packs_reasoning: reasoning is given in the form that clients carry unread, too."""
        self.block = block
        self.origin = tools.origin_of(block.name) if block.name else Origin("")
        prefix = _PREFIXES.get(block.kind) or ("ctc_" if self.origin.is_custom else "fc_")
        self.id = f"{prefix}{secrets.token_hex(16)}"
        self._packs_reasoning = packs_reasoning

    @property
    def custom_input(self) -> str:
        """The text for a custom tool: the one argument of the function that stands for it."""
        text = self.block.text
        try:
            value = orjson.loads(text)[CUSTOM_INPUT]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return text
        return value if isinstance(value, str) else text

    def begun(self) -> dict[str, Any]:
        """The item as it is announced: without what its pieces will tell."""
        return self._make("in_progress", empty=True)

    def ended(self, status: str) -> dict[str, Any]:
        """The whole item."""
        return self._make(status, empty=False)

    def part(self, *, empty: bool = False) -> dict[str, Any]:
        """The one part of a message or of reasoning."""
        text = "" if empty else self.block.text
        if self.block.kind is BlockKind.REASONING:
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _make(self, status: str, *, empty: bool) -> dict[str, Any]:
        content = [] if empty else [self.part()]
        match self.block.kind:
            case BlockKind.REASONING:
                packed = pack_reasoning(self.block.text) if self._packs_reasoning and not empty else None
                made: dict[str, Any] = {"type": "reasoning", "summary": [], "content": content}
                made["encrypted_content"] = packed
            case BlockKind.TEXT:
                made = {"type": "message", "role": "assistant", "content": content}
            case BlockKind.CALL:
                made = self._make_call(empty=empty)
        return {"id": self.id, "status": status} | made

    def _make_call(self, *, empty: bool) -> dict[str, Any]:
        made: dict[str, Any] = {"call_id": self.block.call_id, "name": self.origin.name}
        if self.origin.namespace is not None:
            made["namespace"] = self.origin.namespace
        if self.origin.is_custom:
            return made | {"type": "custom_tool_call", "input": "" if empty else self.custom_input}
        return made | {"type": "function_call", "arguments": "" if empty else self.block.text}
