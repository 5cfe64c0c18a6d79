"""What a request may have taken out of its own history before the model sees it: old results of tools, old thoughts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from frontend_svc.api.anthropic.blocks import (
    AnyBlock,
    InputMessage,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from frontend_svc.api.openai.schema import Body

PLACEHOLDER = "[This result was cleared to save context.]"
"""Stands where the result of a tool was."""
MAX_EDITS = 16
Messages = Sequence[InputMessage]


@dataclass(frozen=True)
class Cut:
    """A history that has lost something."""

    messages: Messages
    told: dict[str, Any]
    """How many of what are gone, as answers name it."""


class InputTokens(Body):
    """So many tokens of the prompt."""

    type: Literal["input_tokens"] = "input_tokens"
    value: Annotated[int, Field(ge=0)]


class ToolUses(Body):
    """So many calls."""

    type: Literal["tool_uses"] = "tool_uses"
    value: Annotated[int, Field(ge=0)]


class ClearToolUses(Body):
    """Results of all but the latest calls give way to a placeholder, once there is more than `trigger` of them."""

    type: Literal["clear_tool_uses_20250919"]
    trigger: Annotated[InputTokens | ToolUses, Field(discriminator="type")] = InputTokens(value=100_000)
    keep: ToolUses = ToolUses(value=3)
    clear_at_least: InputTokens | None = None
    """Nothing is cleared unless it is at least so much."""
    exclude_tools: list[str] | None = None
    """Tools whose results stay."""
    clear_tool_inputs: (
        Annotated[
            Annotated[bool, Tag("as bool")] | Annotated[list[str], Tag("as names")],
            Discriminator(lambda value: "as bool" if isinstance(value, bool) else "as names"),
        ]
        | None
    ) = None
    """Whether, or of which tools, the arguments of calls are cleared too."""

    @property
    def least(self) -> int:
        """Tokens that have to go."""
        return self.clear_at_least.value if self.clear_at_least else 0

    def is_due(self, messages: Messages, num_tokens: int) -> bool:
        """`num_tokens` are those of the prompt, or no less."""
        if isinstance(self.trigger, InputTokens):
            return num_tokens > self.trigger.value
        return len(_calls(messages)) > self.trigger.value

    def apply(self, messages: Messages) -> Cut | None:
        """None: there is nothing to clear."""
        calls = _calls(messages)
        old = calls[: max(0, len(calls) - self.keep.value)]
        excluded = frozenset(self.exclude_tools or ())
        names = {call.id: call.name for call in old if call.name not in excluded}
        cleared: set[str] = set()

        def clear(block: AnyBlock) -> AnyBlock:
            if isinstance(block, ToolResultBlock) and block.tool_use_id in names and _has_content(block):
                cleared.add(block.tool_use_id)
                return block.model_copy(update={"content": PLACEHOLDER})
            if isinstance(block, ToolUseBlock) and block.id in names and self._clears_input(block.name):
                return block.model_copy(update={"input": {}})
            return block

        made = _replace(messages, clear)
        return Cut(made, {"cleared_tool_uses": len(cleared)}) if cleared else None

    def _clears_input(self, name: str) -> bool:
        wanted = self.clear_tool_inputs
        return wanted if isinstance(wanted, bool) else name in (wanted or ())


class ThinkingTurns(Body):
    """So many turns of the assistant that have thoughts."""

    type: Literal["thinking_turns"] = "thinking_turns"
    value: Annotated[int, Field(ge=1)]


class AllThinking(Body):
    """Thoughts of all turns."""

    type: Literal["all"]


def _keep_kind(value: Any) -> str:
    if isinstance(value, str):
        return "as word"
    kind = value.get("type") if isinstance(value, dict) else None
    return "as all" if kind == "all" else "as turns"


class ClearThinking(Body):
    """Thoughts of all but the latest turns of the assistant are left out."""

    type: Literal["clear_thinking_20251015"]
    keep: Annotated[
        Annotated[Literal["all"], Tag("as word")]
        | Annotated[AllThinking, Tag("as all")]
        | Annotated[ThinkingTurns, Tag("as turns")],
        Discriminator(_keep_kind),
    ] = ThinkingTurns(value=1)

    @property
    def least(self) -> int:
        """Tokens that have to go: none."""
        return 0

    def is_due(self, messages: Messages, num_tokens: int) -> bool:
        """Whatever the length."""
        return True

    def apply(self, messages: Messages) -> Cut | None:
        """None: there is nothing to clear."""
        if not isinstance(self.keep, ThinkingTurns):
            return None
        turns = [turn for turn in _turns(messages) if any(_thinks(messages[index]) for index in turn)]
        old = turns[: -self.keep.value]
        if not old:
            return None
        indices = set(chain.from_iterable(old))
        made = [_without_thoughts(each) if i in indices else each for i, each in enumerate(messages)]
        return Cut([each for each in made if each is not None], {"cleared_thinking_turns": len(old)})


class OtherEdit(Body):
    """An edit that nobody here does, such as a summary of all: the history stays as it is, and a warning says so."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    type: str


def _edit_kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    known = {"clear_tool_uses_20250919": "as tool uses", "clear_thinking_20251015": "as thinking"}
    return known.get(str(kind), "as other")


class ContextManagement(Body):
    """Edits of the history, one on what the one before it left."""

    edits: (
        Annotated[
            list[
                Annotated[
                    Annotated[ClearToolUses, Tag("as tool uses")]
                    | Annotated[ClearThinking, Tag("as thinking")]
                    | Annotated[OtherEdit, Tag("as other")],
                    Discriminator(_edit_kind),
                ]
            ],
            Field(max_length=MAX_EDITS),
        ]
        | None
    ) = None
    """Each may have the whole prompt rendered and counted."""

    @property
    def unknown(self) -> list[str]:
        """Types of edits that are not done."""
        return [edit.type for edit in self.edits or () if isinstance(edit, OtherEdit)]


def _calls(messages: Messages) -> list[ToolUseBlock]:
    return [block for message in messages for block in _blocks(message) if isinstance(block, ToolUseBlock)]


def _blocks(message: InputMessage) -> Sequence[AnyBlock]:
    return () if isinstance(message.content, str) else message.content


def _has_content(block: ToolResultBlock) -> bool:
    return bool(block.content) and block.content != PLACEHOLDER


def _replace(messages: Messages, change: Callable[[AnyBlock], AnyBlock]) -> Messages:
    return [
        message
        if isinstance(message.content, str)
        else message.model_copy(update={"content": [change(block) for block in message.content]})
        for message in messages
    ]


def _turns(messages: Messages) -> Iterator[list[int]]:
    """Messages of the assistant by turn: results of tools do not end one, anything else of the user does."""
    turn: list[int] = []
    for index, message in enumerate(messages):
        if message.role == "assistant":
            turn.append(index)
        elif not (blocks := _blocks(message)) or not all(isinstance(b, ToolResultBlock) for b in blocks):
            if turn:
                yield turn
            turn = []
    if turn:
        yield turn


def _thinks(message: InputMessage) -> bool:
    return any(isinstance(block, ThinkingBlock) for block in _blocks(message))


def _without_thoughts(message: InputMessage) -> InputMessage | None:
    """None: it had nothing else."""
    if not _thinks(message):
        return message
    rest = [block for block in _blocks(message) if not isinstance(block, ThinkingBlock)]
    return message.model_copy(update={"content": rest}) if rest else None
