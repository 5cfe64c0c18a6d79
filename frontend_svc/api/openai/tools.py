"""Tools of a chat: what the template is told of them, which form they ask for, and how their calls are found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag

from frontend_svc.api.openai.forms import to_json
from frontend_svc.api.openai.schema import Body
from frontend_svc.requests.request import StructuredOutput
from frontend_svc.text.tool_calls import Calls, ListedCalls, NamedCall, TaggedCalls
from signalbox.errors import InvalidRequestError
from signalbox.grammar.form import FormKind

_ANY_OBJECT: dict[str, Any] = {"type": "object"}
MAX_TOOLS = 128
"""Most tools of one request, as OpenAI has it."""


class Function(Body):
    """A function that the model may call, with the schema of its arguments."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """The JSON schema of the arguments; None: the function has none."""
    strict: bool | None = None
    """Calls that are forced follow the schema in any case; others are the model's own."""


class Tool(Body):
    """One entry of `tools`."""

    type: Literal["function"]
    function: Function


class ChosenFunction(Body):
    """The name of the function that has to be called."""

    name: str


class ChosenTool(Body):
    """The one tool that has to be called."""

    type: Literal["function"]
    function: ChosenFunction


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("as word")] | Annotated[ChosenTool, Tag("as tool")],
    Discriminator(lambda value: "as word" if isinstance(value, str) else "as tool"),
]


class Toolbox:
    """The tools of one request and the choice among them."""

    def __init__(self, tools: Sequence[Tool], choice: str | ChosenTool | None, *, parallel: bool) -> None:
        """Raises InvalidRequestError when tools and choice do not fit each other."""
        self._functions = [tool.function for tool in tools]
        self._choice = choice or ("auto" if tools else "none")
        self._parallel = parallel
        if len(tools) > MAX_TOOLS:
            raise InvalidRequestError(
                f"tools has {len(tools)}, at most {MAX_TOOLS} are allowed", field="tools"
            )
        names = [function.name for function in self._functions]
        if len(set(names)) < len(names) or "" in names:
            raise InvalidRequestError("tools must have names, each another one", field="tools")
        if not tools and self._choice != "none":
            raise InvalidRequestError("tool_choice needs tools", field="tool_choice")
        if isinstance(self._choice, ChosenTool) and self._choice.function.name not in names:
            field = "tool_choice.function.name"
            raise InvalidRequestError(
                f"{field} {self._choice.function.name!r} is not among the tools", field=field
            )

    @property
    def is_named(self) -> bool:
        """The client named the tool to call."""
        return isinstance(self._choice, ChosenTool)

    @property
    def is_forced(self) -> bool:
        """There has to be a call."""
        return self.is_named or self._choice == "required"

    def for_template(self) -> list[dict[str, Any]]:
        """The tools as chat templates expect them."""
        if self._choice == "none":
            return []
        return [
            {"type": "function", "function": function.model_dump(exclude_none=True, exclude={"strict"})}
            for function in self._functions
        ]

    def form(self) -> StructuredOutput | None:
        """What a forced call has to look like; None: the model may write what it wants."""
        if not self.is_forced:
            return None
        if isinstance(self._choice, ChosenTool):
            name = self._choice.function.name
            schema = next(f.parameters for f in self._functions if f.name == name) or _ANY_OBJECT
        else:
            schema = {
                "type": "array",
                "minItems": 1,
                "items": {"anyOf": list(map(_call_schema, self._functions))},
            }
            if not self._parallel:
                schema["maxItems"] = 1
        return StructuredOutput(FormKind.JSON_SCHEMA, to_json(schema, "tools"), field="tools")

    def make_calls(self) -> Calls | None:
        """Finds the calls in the output of one choice; None: none are looked for."""
        if isinstance(self._choice, ChosenTool):
            return NamedCall(self._choice.function.name)
        if self._choice == "required":
            return ListedCalls()
        return TaggedCalls() if self._choice == "auto" else None


def _call_schema(function: Function) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": [function.name]},
            "arguments": function.parameters or _ANY_OBJECT,
        },
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
