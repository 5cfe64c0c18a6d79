"""Tools of a chat: what the template is told of them, which form they ask for, and how their calls are found."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag

from frontend_svc.api.openai.forms import to_json
from frontend_svc.api.openai.schema import Body
from frontend_svc.grammars.schemas import ANNOTATIONS, moved
from frontend_svc.requests.request import StructuredOutput
from frontend_svc.text.parsing.language import Calls
from signalbox.errors import InvalidRequestError
from signalbox.grammar.form import FormKind

_ANY_OBJECT: dict[str, Any] = {"type": "object"}
MAX_TOOLS = 4096
"""Most tools of one request. OpenAI has 128, but agents bring more of them together; bytes bound them before."""


class Function(Body):
    """A function that the model may call, with the schema of its arguments."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """The JSON schema of the arguments; None: the function has none."""
    strict: bool | None = None
    """Calls follow the schema. Those that are forced do in any case."""


class Tool(Body):
    """One entry of `tools`."""

    type: Literal["function"]
    function: Function
    # Say nothing to the model:
    cache_control: Any = None
    defer_loading: Literal[False] | None = None


class ChosenFunction(Body):
    """The name of the function that has to be called."""

    name: str


class ChosenTool(Body):
    """The one tool that has to be called."""

    type: Literal["function"]
    function: ChosenFunction


class AllowedTools(Body):
    """Some of the tools, and whether one of them has to be called."""

    mode: Literal["auto", "required"]
    tools: list[ChosenTool]


class AllowedChoice(Body):
    """Tools that may be called; the model is told of all."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


def _kind_of_choice(value: Any) -> str:
    if isinstance(value, str):
        return "as word"
    kind = value.get("type") if isinstance(value, dict) else None
    return "as allowed tools" if kind == "allowed_tools" else "as tool"


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("as word")]
    | Annotated[ChosenTool, Tag("as tool")]
    | Annotated[AllowedChoice, Tag("as allowed tools")],
    Discriminator(_kind_of_choice),
]


class Toolbox:
    """The tools of one request and the choice among them."""

    def __init__(
        self,
        tools: Sequence[Tool],
        choice: str | ChosenTool | AllowedChoice | None,
        *,
        parallel: bool,
        told_later: Collection[str] = (),
    ) -> None:
        """`told_later`: tools that messages describe, not the template. Raises InvalidRequestError when tools and
        choice do not fit each other."""
        self._functions = [tool.function for tool in tools]
        self._told_later = told_later
        self._mode = "auto" if tools else "none"
        self._allowed = {function.name for function in self._functions}
        self.max_calls = 0 if parallel else 1
        """Calls of one output; 0: any number."""
        self._check_tools()
        if isinstance(choice, str):
            self._mode = choice
        elif isinstance(choice, ChosenTool):
            self._mode = "named"
            self._allow([choice], "tool_choice")
        elif choice is not None:
            self._mode = choice.allowed_tools.mode
            self._allow(choice.allowed_tools.tools, "tool_choice.allowed_tools.tools")
        if not tools and self._mode != "none":
            raise InvalidRequestError("tool_choice needs tools", field="tool_choice")

    def _check_tools(self) -> None:
        if len(self._functions) > MAX_TOOLS:
            raise InvalidRequestError(
                f"tools has {len(self._functions)}, at most {MAX_TOOLS} are allowed", field="tools"
            )
        if len(self._allowed) < len(self._functions) or "" in self._allowed:
            raise InvalidRequestError("tools must have names, each another one", field="tools")

    def _allow(self, tools: Sequence[ChosenTool], field: str) -> None:
        """Only these may be called. Raises InvalidRequestError when there is no such tool, or none at all."""
        for tool in tools:
            if tool.function.name not in self._allowed:
                name = f"{field}.function.name"
                raise InvalidRequestError(f"{name} {tool.function.name!r} is not among the tools", field=name)
        if not tools:
            raise InvalidRequestError(f"{field} is empty", field=field)
        self._allowed = {tool.function.name for tool in tools}

    @property
    def is_named(self) -> bool:
        """The client named the tool to call."""
        return self._mode == "named"

    @property
    def is_forced(self) -> bool:
        """There has to be a call."""
        return self._mode in ("named", "required")

    @property
    def calls(self) -> Calls:
        """How calls will be written."""
        if self.is_named:
            return Calls.NAMED
        return Calls.LISTED if self.is_forced else Calls.AUTO

    @property
    def callable(self) -> dict[str, dict[str, Any]]:
        """Schemas of the arguments of the tools that may be called, by name; empty: none may be."""
        if self._mode == "none":
            return {}
        return {f.name: f.parameters or _ANY_OBJECT for f in self._functions if f.name in self._allowed}

    @property
    def strict_functions(self) -> dict[str, dict[str, Any]]:
        """As `bound_functions`; empty: no tool asks for that."""
        return self.bound_functions if self._strict_names & self._allowed else {}

    @property
    def bound_functions(self) -> dict[str, dict[str, Any]]:
        """Schemas that calls have to follow where the model chooses whether to call, by name; empty: it does not. Of
        tools that are not strict any object will do."""
        if self._mode != "auto":
            return {}
        strict = self._strict_names
        return {
            name: _declared(schema) if name in strict else _ANY_OBJECT
            for name, schema in self.callable.items()
        }

    @property
    def _strict_names(self) -> set[str]:
        return {function.name for function in self._functions if function.strict}

    def for_template(self) -> list[dict[str, Any]]:
        """The tools as chat templates expect them."""
        if self._mode == "none":
            return []
        return [
            {"type": "function", "function": function.model_dump(exclude_none=True, exclude={"strict"})}
            for function in self._functions
            if function.name not in self._told_later
        ]

    def form(self) -> StructuredOutput | None:
        """What a forced call has to look like; None: the model may write what it wants."""
        if not self.is_forced:
            return None
        tools = {name: _declared(schema) for name, schema in self.callable.items()}
        if self.is_named:
            (schema,) = tools.values()
        else:
            calls = [_call_schema(name, schema, place) for place, (name, schema) in enumerate(tools.items())]
            schema = {"type": "array", "minItems": 1, "items": {"anyOf": calls}}
            if self.max_calls:
                schema["maxItems"] = self.max_calls
        return StructuredOutput(FormKind.JSON_SCHEMA, to_json(schema, "tools"), field="tools")

    def describe(self, messages: Sequence[dict[str, Any]], *, to_user: bool) -> list[dict[str, Any]]:
        """The messages with the tools told in words, for a template that has no place for them."""
        wanted = 'a JSON array of calls, [{"name": ..., "arguments": {...}}]'
        if self.is_named:
            wanted = f"the arguments of the function {next(iter(self.callable))} as a JSON object"
        functions = "\n".join(to_json(tool["function"], "tools") for tool in self.for_template())
        text = f"These functions can be called:\n{functions}\n\nAnswer with {wanted} and nothing else."
        role = "user" if to_user else "system"
        place = next((i for i, message in enumerate(messages) if message["role"] == role), None)
        if place is None:
            return [{"role": role, "content": text}, *messages]
        told = list(messages)
        told[place] = messages[place] | {"content": _behind(messages[place].get("content"), text)}
        return told


def _declared(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters without others beside them, unless the schema says something of others itself: JSON Schema lets an
    object have any, but a function takes what it declares, and a weak model that may go on does so."""
    plain = {"type", "properties", "required", "$defs", "definitions", *ANNOTATIONS}
    if "properties" not in parameters or parameters.keys() - plain:
        return parameters
    return parameters | {"additionalProperties": False}


def _behind(content: Any, text: str) -> Any:
    """Content of a message with more text at its end."""
    if isinstance(content, list):
        return [*content, {"type": "text", "text": text}]
    return f"{content}\n\n{text}" if content else text


def _call_schema(name: str, parameters: dict[str, Any], place: int) -> dict[str, Any]:
    """One call, as alternative number `place` of a list's items."""
    arguments = parameters
    if '"$ref"' in to_json(parameters, "tools"):
        arguments = moved(parameters, f"#/items/anyOf/{place}/properties/arguments")
    return {
        "type": "object",
        "properties": {"name": {"type": "string", "enum": [name]}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
