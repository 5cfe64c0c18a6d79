"""Messages of a chat as they come, and as chat templates expect them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import orjson
from pydantic import Discriminator, Tag

from frontend_svc.api.openai.schema import Body
from signalbox.errors import InvalidRequestError


class TextPart(Body):
    """A part of a message."""

    type: Literal["text"]
    text: str


Content = Annotated[
    Annotated[str, Tag("as string")] | Annotated[list[TextPart], Tag("as parts")],
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


class Message(Body):
    """One message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: str | None = None
    refusal: None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    # What our own answers have beside it, for clients that send them back whole; nothing else than null.
    annotations: None = None
    audio: None = None
    function_call: None = None

    def render(self, field: str) -> dict[str, Any]:
        """The message as chat templates expect it; `field` is where it stands in the body."""
        if self.content is None and self.role != "assistant":
            raise InvalidRequestError(f"{field}.content is missing", field=f"{field}.content")
        self._check_tools(field)
        content = self.content or ""
        text = content if isinstance(content, str) else "".join(part.text for part in content)
        rendered: dict[str, Any] = {"role": self.role, "content": text}
        if self.name:
            rendered["name"] = self.name
        if self.tool_call_id is not None:
            rendered["tool_call_id"] = self.tool_call_id
        if self.tool_calls:
            rendered["tool_calls"] = [
                _render_call(call, f"{field}.tool_calls[{index}]")
                for index, call in enumerate(self.tool_calls)
            ]
        return rendered

    def _check_tools(self, field: str) -> None:
        if self.tool_calls is not None and self.role != "assistant":
            field += ".tool_calls"
            raise InvalidRequestError(f"{field} is for messages of the assistant", field=field)
        if (self.tool_call_id is not None) != (self.role == "tool"):
            field += ".tool_call_id"
            raise InvalidRequestError(
                f"{field} is needed in messages of the role tool, and in no others", field=field
            )


def render_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """All, as chat templates expect them."""
    return [message.render(f"messages[{index}]") for index, message in enumerate(messages)]


def _render_call(call: ToolCall, field: str) -> dict[str, Any]:
    """Templates write the arguments as JSON themselves."""
    field += ".function.arguments"
    try:
        arguments = orjson.loads(call.function.arguments or "{}")
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"{field} is not JSON: {error}", field=field) from None
    if not isinstance(arguments, dict):
        raise InvalidRequestError(f"{field} is not a JSON object", field=field)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.function.name, "arguments": arguments},
    }
