"""Messages of a chat as clients send them: what changes nothing is let pass, what would be lost is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from frontend_svc.api.openai.schema import Body
from frontend_svc.templates.conversation import Plain
from signalbox.errors import InvalidRequestError


class TextPart(Body):
    """A part of a message; parts of the Responses API may stand in a history, too."""

    type: Literal["text", "input_text", "output_text"]
    text: str
    # Say nothing to the model:
    cache_control: Any = None
    annotations: Any = None
    id: Any = None


class RefusalPart(Body):
    """What an assistant said instead of an answer."""

    type: Literal["refusal"]
    refusal: str


def _part_kind(value: Any) -> str:
    if isinstance(value, str):
        return "as string"
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "as refusal" if kind == "refusal" else "as text"


Part = Annotated[
    Annotated[str, Tag("as string")]
    | Annotated[TextPart, Tag("as text")]
    | Annotated[RefusalPart, Tag("as refusal")],
    Discriminator(_part_kind),
]
Content = Annotated[
    Annotated[str, Tag("as string")] | Annotated[list[Part], Tag("as parts")],
    Discriminator(lambda value: "as string" if isinstance(value, str) else "as parts"),
]


class CalledFunction(Body):
    """The function that an assistant called, with its arguments."""

    name: str
    arguments: str
    """The arguments as the text of a JSON object."""


class ToolCall(Body):
    """A call in a message of the assistant."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None
    """Its place, as chunks of a stream tell it."""


class Message(Body):
    """One message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content | None = None
    name: str | None = None
    refusal: str | None = None
    """What the assistant said instead of `content`."""
    reasoning: str | None = None
    """What the assistant thought, of an earlier answer; whether it is told to the model is up to the template."""
    reasoning_content: str | None = None
    """An older name of `reasoning`."""
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    function_call: CalledFunction | None = None
    """A call as before there were tools; its result is the next message, of the role function."""
    # Say nothing to the model; of our own answers, of other servers' and of clients that keep a history:
    id: Any = None
    type: Any = None
    status: Any = None
    annotations: Any = None
    cache_control: Any = None
    provider_specific_fields: Any = None
    reasoning_details: Any = None
    thinking_blocks: Any = None
    # Would say something, and cannot be told:
    audio: None = None
    images: Annotated[list[Any], Field(max_length=0)] | None = None
    prefix: Literal[False] | None = None

    def plain(self, field: str) -> Plain:
        """As templates are told of it; `field` is where the message stands in the body."""
        content = self.refusal if self.content is None else self.content
        if content is None and self.role != "assistant":
            raise InvalidRequestError(f"{field}.content is missing", field=f"{field}.content")
        self._check_tools(field)
        plain: Plain = {
            "role": "tool" if self.role == "function" else self.role,
            "content": content if content is None or isinstance(content, str) else _plain_parts(content),
        }
        if self.name:
            plain["name"] = self.name
        if self.tool_call_id is not None:
            plain["tool_call_id"] = self.tool_call_id
        if thought := self.reasoning or self.reasoning_content:
            plain["reasoning"] = thought
        if self.tool_calls:
            plain["tool_calls"] = [_plain_call(call.id, call.function) for call in self.tool_calls]
        elif self.function_call is not None:
            plain["tool_calls"] = [_plain_call(self._call_id(), self.function_call)]
        if self.role == "function":
            plain["tool_call_id"] = self._call_id()
        return plain

    def _call_id(self) -> str:
        """Id of a call from before calls had ids: nine letters, as some templates want nothing else."""
        name = self.name if self.function_call is None else self.function_call.name
        return "".join(filter(str.isalnum, name or "")).ljust(9, "0")[:9]

    def _check_tools(self, field: str) -> None:
        for name in ("tool_calls", "function_call"):
            if getattr(self, name) and self.role != "assistant":
                field += f".{name}"
                raise InvalidRequestError(f"{field} is for messages of the assistant", field=field)
        if (self.tool_call_id is not None) != (self.role == "tool"):
            field += ".tool_call_id"
            raise InvalidRequestError(
                f"{field} is needed in messages of the role tool, and in no others", field=field
            )


def plain_messages(messages: Sequence[Message]) -> list[Plain]:
    """All, as templates are told of them."""
    return [message.plain(f"messages[{index}]") for index, message in enumerate(messages)]


def _plain_parts(parts: Sequence[str | TextPart | RefusalPart]) -> list[Plain]:
    return [{"type": "text", "text": _text_of(part)} for part in parts]


def _text_of(part: str | TextPart | RefusalPart) -> str:
    if isinstance(part, str):
        return part
    return part.refusal if isinstance(part, RefusalPart) else part.text


def _plain_call(call_id: str, function: CalledFunction) -> Plain:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": function.name, "arguments": function.arguments},
    }
