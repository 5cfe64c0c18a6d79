"""Blocks of content, of the client or of our earlier answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Tag

from frontend_svc.api.openai.schema import Body


def string_or_blocks(value: Any) -> str:
    """Chooses the alternative."""
    return "as string" if isinstance(value, str) else "as blocks"


class Block(Body):
    """What all blocks may have beside their own fields; it says nothing to the model."""

    cache_control: Any = None


class TextBlock(Block):
    """A block of text."""

    type: Literal["text"]
    text: str
    citations: Any = None


class ThinkingBlock(Block):
    """What the model thought in an earlier answer."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None
    """In our own answers it is the thought, in a form that clients carry unread."""


class RedactedThinkingBlock(Block):
    """What another server's model thought; nobody here can read it."""

    type: Literal["redacted_thinking"]
    data: Any = None


class ReferenceBlock(Block):
    """A tool that was found, of those whose schemas the model is not told from the start."""

    type: Literal["tool_reference"]
    tool_name: str


class UnseenBlock(Body):
    """An image or a document that a tool gave. The model cannot see it, and is told so."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    type: Literal["image", "document"]


def _result_kind(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        return None
    return "as unseen" if kind in ("image", "document") else f"as {kind}"


ResultBlock = Annotated[
    Annotated[TextBlock, Tag("as text")]
    | Annotated[ReferenceBlock, Tag("as tool_reference")]
    | Annotated[UnseenBlock, Tag("as unseen")],
    Discriminator(_result_kind),
]


class ToolUseBlock(Block):
    """A call of the model."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]
    caller: Any = None
    toolset_name: Any = None


class ToolResultBlock(Block):
    """What a call gave."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: (
        Annotated[
            Annotated[str, Tag("as string")] | Annotated[list[ResultBlock], Tag("as blocks")],
            Discriminator(string_or_blocks),
        ]
        | None
    ) = None
    is_error: bool | None = None
    toolset_name: Any = None


class HostedBlock(Body):
    """What a tool of another server did there. It is left out."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    type: str


def _block_kind(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        return None
    is_hosted = kind == "server_tool_use" or kind.endswith("_tool_result")
    return "as hosted" if is_hosted else f"as {kind}"


AnyBlock = Annotated[
    Annotated[TextBlock, Tag("as text")]
    | Annotated[ThinkingBlock, Tag("as thinking")]
    | Annotated[RedactedThinkingBlock, Tag("as redacted_thinking")]
    | Annotated[ToolUseBlock, Tag("as tool_use")]
    | Annotated[ToolResultBlock, Tag("as tool_result")]
    | Annotated[HostedBlock, Tag("as hosted")],
    Discriminator(_block_kind),
]


Content = Annotated[
    Annotated[str, Tag("as string")] | Annotated[list[AnyBlock], Tag("as blocks")],
    Discriminator(string_or_blocks),
]
System = Annotated[
    Annotated[str, Tag("as string")] | Annotated[list[TextBlock], Tag("as blocks")],
    Discriminator(string_or_blocks),
]


class InputMessage(Body):
    """One message of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: Content
