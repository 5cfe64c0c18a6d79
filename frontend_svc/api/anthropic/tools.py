"""Tools of the Messages API."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Tag

from frontend_svc.api.openai.schema import Body
from frontend_svc.api.openai.tools import ChosenFunction, ChosenTool, Function, Tool, Toolbox
from signalbox.errors import InvalidRequestError


class ClientTool(Body):
    """A function that the model may call."""

    type: Literal["custom"] | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None
    defer_loading: bool | None = None
    """The model is told of it when a search has found it, and cannot call it before."""
    # Say nothing to the model:
    allowed_callers: Any = None
    cache_control: Any = None
    eager_input_streaming: Any = None
    input_examples: Any = None


class HostedTool(Body):
    """A tool that Anthropic runs, or of which only its models know the schema. It is left out, with a warning."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    type: str


def _tool_kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    return "as client tool" if kind in (None, "custom") else "as hosted tool"


AnyTool = Annotated[
    Annotated[ClientTool, Tag("as client tool")] | Annotated[HostedTool, Tag("as hosted tool")],
    Discriminator(_tool_kind),
]


class ToolChoice(Body):
    """Which of the tools may or has to be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


def hosted_types(tools: Sequence[AnyTool]) -> list[str]:
    """Types of those that are left out."""
    return [tool.type for tool in tools if isinstance(tool, HostedTool)]


def make_toolbox(tools: Sequence[AnyTool], choice: ToolChoice | None, found: Collection[str] = ()) -> Toolbox:
    """`found`: names of those that the model has searched for. Raises InvalidRequestError when tools and choice do not
    fit each other."""
    known = [tool for tool in tools if isinstance(tool, ClientTool)]
    told_later = {tool.name for tool in known if tool.defer_loading}
    functions = [
        Tool(
            type="function",
            function=Function(
                name=tool.name, description=tool.description, parameters=tool.input_schema, strict=tool.strict
            ),
        )
        for tool in known
        if tool.name in found or tool.name not in told_later
    ]
    parallel = choice is None or not choice.disable_parallel_tool_use
    return Toolbox(functions, _choose(functions, choice), parallel=parallel, told_later=told_later)


def _choose(functions: Sequence[Tool], choice: ToolChoice | None) -> str | ChosenTool | None:
    if choice is None or (choice.type == "auto" and not functions):
        return None
    if choice.type != "tool":
        return "required" if choice.type == "any" else choice.type
    if choice.name not in [tool.function.name for tool in functions]:
        field = "tool_choice.name"
        raise InvalidRequestError(f"{field}: {choice.name!r} is not among the tools", field=field)
    return ChosenTool(type="function", function=ChosenFunction(name=choice.name))
