"""The items of `input`: messages, reasoning, calls and what they gave, of the client or of our earlier answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, ConfigDict, Discriminator, Field, Tag

from frontend_svc.api.openai.schema import Body


class InputPart(Body):
    """A part of text; `output_text` is one of our own earlier answer."""

    type: Literal["input_text", "output_text", "text"]
    text: str
    # Say nothing to the model:
    annotations: Any = None
    logprobs: Any = None
    prompt_cache_breakpoint: Any = None


class RefusalPart(Body):
    """What an assistant said instead of an answer."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        """The refusal."""
        return self.refusal


def _part_kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    return "as refusal" if kind == "refusal" else "as text"


Parts = list[
    Annotated[
        Annotated[InputPart, Tag("as text")] | Annotated[RefusalPart, Tag("as refusal")],
        Discriminator(_part_kind),
    ]
]
Content = Annotated[
    Annotated[str, Tag("as string")] | Annotated[Parts, Tag("as parts")],
    Discriminator(lambda value: "as string" if isinstance(value, str) else "as parts"),
]


class UnseenPart(Body):
    """An image or a file that a tool gave. The model cannot see it, and is told so."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    type: Literal["input_image", "input_file"]

    @property
    def kind(self) -> str:
        """Image or file."""
        return self.type.removeprefix("input_")

    @property
    def text(self) -> str:
        """What stands for it."""
        return f"[{self.kind}: it cannot be shown here]"


OutputParts = list[
    Annotated[
        Annotated[InputPart, Tag("as text")] | Annotated[UnseenPart, Tag("as unseen")],
        Discriminator(
            lambda value: "as unseen" if _type_of(value) in ("input_image", "input_file") else "as text"
        ),
    ]
]
"""What a call gave."""


def _type_of(value: Any) -> Any:
    return value.get("type") if isinstance(value, dict) else None


def texts_of(content: str | Sequence[InputPart | RefusalPart | UnseenPart]) -> list[str]:
    """The text of each part."""
    return [content] if isinstance(content, str) else [part.text for part in content]


class Item(Body):
    """What all items may have beside their own fields; it says nothing to the model."""

    id: Any = None
    status: Any = None
    caller: Any = None
    async_: Any = Field(default=None, validation_alias=AliasChoices("async", "async_"))
    """OpenAI's SDK writes it in both ways."""
    internal_chat_message_metadata_passthrough: Any = None


class MessageItem(Item):
    """One message, of the client or of an earlier answer."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    phase: Any = None
    end_turn: Any = None


class ReasoningText(Body):
    """A part of reasoning."""

    type: Literal["reasoning_text", "text"]
    text: str


class ReasoningItem(Item):
    """What the model thought in an earlier answer."""

    type: Literal["reasoning"]
    summary: Annotated[list[Any], Field(max_length=1024)] | None = None
    """Not told: it is another model's, as we make none."""
    content: list[ReasoningText] | None = None
    encrypted_content: str | None = None
    """Content in a form that clients carry unread; another server's says nothing."""


class CallItem(Item):
    """A call of a function."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    """The text of a JSON object, as the model wrote it."""
    namespace: str | None = None


class CallOutputItem(Item):
    """What a call gave."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: Annotated[
        Annotated[str, Tag("as string")] | Annotated[OutputParts, Tag("as parts")],
        Discriminator(lambda value: "as string" if isinstance(value, str) else "as parts"),
    ]
    name: Any = None


class CustomCallItem(Item):
    """A call of a tool that takes free text."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str
    namespace: str | None = None


class HostedItem(Body):
    """What a tool of another server did there. It is left out."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    type: str


HOSTED_ITEMS = {
    "code_interpreter_call",
    "file_search_call",
    "image_generation_call",
    "mcp_list_tools",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
}


def _item_kind(value: Any) -> str | None:
    kind = value.get("type", "message") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        return None
    if kind in HOSTED_ITEMS:
        return "as hosted"
    return "as function_call_output" if kind == "custom_tool_call_output" else f"as {kind}"


AnyItem = Annotated[
    Annotated[MessageItem, Tag("as message")]
    | Annotated[ReasoningItem, Tag("as reasoning")]
    | Annotated[CallItem, Tag("as function_call")]
    | Annotated[CallOutputItem, Tag("as function_call_output")]
    | Annotated[CustomCallItem, Tag("as custom_tool_call")]
    | Annotated[HostedItem, Tag("as hosted")],
    Discriminator(_item_kind),
]


def unseen_kinds(source: str | Sequence[AnyItem]) -> list[str]:
    """What calls gave that the model cannot see."""
    parts = [
        part
        for item in source
        if isinstance(item, CallOutputItem) and not isinstance(item.output, str)
        for part in item.output
    ]
    return sorted({part.kind for part in parts if isinstance(part, UnseenPart)})
