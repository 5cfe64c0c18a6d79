"""Tools of the Responses API, which are functions to the model whatever they are to the client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from frontend_svc.api.openai.schema import Body
from frontend_svc.api.openai.tools import AllowedChoice as ChatAllowedChoice
from frontend_svc.api.openai.tools import AllowedTools, ChosenFunction, ChosenTool, Function, Tool, Toolbox
from signalbox.errors import InvalidRequestError, UnsupportedError

CUSTOM_INPUT = "input"
"""The one argument of the function that stands for a tool of free text."""


class FunctionTool(Body):
    """A function that the model may call."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    # Say nothing to the model:
    output_schema: Any = None
    defer_loading: Any = None
    allowed_callers: Any = None


class CustomFormat(Body):
    """How the text for a custom tool is to be written."""

    type: Literal["text", "grammar"]
    syntax: str | None = None
    definition: str | None = None


class CustomTool(Body):
    """A tool that takes free text."""

    type: Literal["custom"]
    name: str
    description: str | None = None
    format: CustomFormat | None = None
    """A grammar is told to the model, and not forced."""
    defer_loading: Any = None
    allowed_callers: Any = None


def _tool_kind(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    if not isinstance(kind, str):
        return None
    return f"as {kind}" if kind in ("function", "custom", "namespace") else "as hosted"


class NamespaceTool(Body):
    """Tools under a common name."""

    type: Literal["namespace"]
    name: Annotated[str, Field(max_length=256)]
    """A part of the name of each of its tools."""
    description: str | None = None
    tools: Annotated[
        list[
            Annotated[
                Annotated[FunctionTool, Tag("as function")] | Annotated[CustomTool, Tag("as custom")],
                Discriminator(_tool_kind),
            ]
        ],
        Field(max_length=1024),
    ]


class HostedTool(Body):
    """A tool that OpenAI runs itself. It is left out, with a warning."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    type: str


AnyTool = Annotated[
    Annotated[FunctionTool, Tag("as function")]
    | Annotated[CustomTool, Tag("as custom")]
    | Annotated[NamespaceTool, Tag("as namespace")]
    | Annotated[HostedTool, Tag("as hosted")],
    Discriminator(_tool_kind),
]


class NamedChoice(Body):
    """The one tool that has to be called."""

    type: Literal["function", "custom"]
    name: str


class AllowedChoice(Body):
    """The tools that may be called, or of which one has to be."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[dict[str, Any]], Field(max_length=1024)]


class HostedChoice(Body):
    """A tool that OpenAI runs itself."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    type: str


def _choice_kind(value: Any) -> str:
    if isinstance(value, str):
        return "as word"
    kind = value.get("type") if isinstance(value, dict) else None
    if kind in ("function", "custom"):
        return "as named"
    return "as allowed_tools" if kind == "allowed_tools" else "as hosted"


AnyChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("as word")]
    | Annotated[NamedChoice, Tag("as named")]
    | Annotated[AllowedChoice, Tag("as allowed_tools")]
    | Annotated[HostedChoice, Tag("as hosted")],
    Discriminator(_choice_kind),
]


@dataclass(frozen=True)
class Origin:
    """What a function of the model is to the client."""

    name: str
    namespace: str | None = None
    is_custom: bool = False


def flat_name(namespace: str | None, name: str) -> str:
    """The name of a function to the model."""
    if not namespace:
        return name
    return namespace + name if namespace.endswith("_") else f"{namespace}__{name}"


class ResponseTools:
    """The tools of one request: those of the model, and their names on both sides."""

    def __init__(
        self, tools: Sequence[AnyTool], choice: AnyChoice | str | None, *, parallel: bool = True
    ) -> None:
        """Raises InvalidRequestError or UnsupportedError when tools and choice do not fit each other."""
        self.hosted = [tool.type for tool in tools if isinstance(tool, HostedTool)]
        """Types of those that are left out."""
        self._origins: dict[str, Origin] = {}
        functions = [self._read(tool, namespace) for tool, namespace in _flatten(tools)]
        self.toolbox = Toolbox(functions, self._choose(choice, functions), parallel=parallel)

    def origin_of(self, name: str) -> Origin:
        """What a function that the model called is to the client."""
        return self._origins.get(name) or Origin(name)

    def _read(self, tool: FunctionTool | CustomTool, namespace: str | None) -> Tool:
        name = flat_name(namespace, tool.name)
        self._origins[name] = Origin(tool.name, namespace, isinstance(tool, CustomTool))
        if isinstance(tool, CustomTool):
            return Tool(type="function", function=_function_of(tool, name))
        function = Function(
            name=name, description=tool.description, parameters=tool.parameters, strict=tool.strict
        )
        return Tool(type="function", function=function)

    def _choose(
        self, choice: AnyChoice | str | None, functions: Sequence[Tool]
    ) -> str | ChosenTool | ChatAllowedChoice | None:
        match choice:
            case NamedChoice(name=name):
                return _chosen(self._find(name))
            case AllowedChoice():
                return ChatAllowedChoice(
                    type="allowed_tools",
                    allowed_tools=AllowedTools(mode=choice.mode, tools=self._allowed(choice)),
                )
            case HostedChoice(type=kind):
                raise UnsupportedError(f"tool_choice {kind!r} is not supported", field="tool_choice")
            case "auto" if not functions:
                return None
        assert choice is None or isinstance(choice, str)
        return choice

    def _allowed(self, choice: AllowedChoice) -> list[ChosenTool]:
        entries = [entry for entry in choice.tools if entry.get("type") in ("function", "custom")]
        if not entries:
            field = "tool_choice.tools"
            raise InvalidRequestError(f"{field} names no function", field=field)
        return [_chosen(self._find(entry.get("name"), "tool_choice.tools")) for entry in entries]

    def _find(self, name: Any, field: str = "tool_choice.name") -> str:
        """The function that the client calls so, with or without its namespace."""
        if isinstance(name, str):
            if name in self._origins:
                return name
            for flat, origin in self._origins.items():
                if origin.name == name:
                    return flat
        raise InvalidRequestError(f"{field}: {name!r} is not among the tools", field=field)


def _flatten(tools: Iterable[AnyTool]) -> Iterable[tuple[FunctionTool | CustomTool, str | None]]:
    """All that are functions to the model, with their namespaces."""
    for tool in tools:
        if isinstance(tool, NamespaceTool):
            yield from ((inner, tool.name) for inner in tool.tools)
        elif isinstance(tool, FunctionTool | CustomTool):
            yield tool, None


def _chosen(name: str) -> ChosenTool:
    return ChosenTool(type="function", function=ChosenFunction(name=name))


def _function_of(tool: CustomTool, name: str) -> Function:
    """A function of one string."""
    description = tool.description or ""
    if tool.format is not None and tool.format.definition:
        description += f"\n\nThe input follows this grammar ({tool.format.syntax}):\n{tool.format.definition}"
    text = {"type": "string", "description": "The whole input of the tool, as plain text."}
    return Function(
        name=name,
        description=description.strip() or None,
        parameters={
            "type": "object",
            "properties": {CUSTOM_INPUT: text},
            "required": [CUSTOM_INPUT],
            "additionalProperties": False,
        },
    )
