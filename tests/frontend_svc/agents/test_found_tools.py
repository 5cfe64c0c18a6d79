"""Tools that an agent finds while it talks: how the model is told of them."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from frontend_svc.api.anthropic.blocks import InputMessage
from frontend_svc.api.anthropic.conversation import make_history
from frontend_svc.api.anthropic.tools import ClientTool
from tests.frontend_svc.api.test_tools import PARAMETERS


def test_a_tool_that_is_found_again_is_described_once() -> None:
    """A large tool, and thousands of references to it, would be a prompt of gigabytes."""
    tool = {"name": "f", "description": "long " * 20_000, "input_schema": PARAMETERS, "defer_loading": True}
    found = [{"type": "tool_reference", "tool_name": "f"}] * 20
    history: list[Any] = [{"role": "user", "content": "hi"}]
    for i in range(200):
        call = {"type": "tool_use", "id": f"c{i}", "name": "weather", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"c{i}", "content": found}
        history += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    messages = TypeAdapter(list[InputMessage]).validate_python(history)
    tools = {"f": ClientTool.model_validate(tool)}
    whole = "".join(str(message["content"]) for message in make_history(None, messages, tools).messages)
    assert whole.count("long long") == 10_000
    assert whole.count('<function>{"name":"f"}</function>') == 3_999
