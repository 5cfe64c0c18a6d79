"""Messages of clients that no template can be told, or not as they are."""

from __future__ import annotations

import json

import pytest

from frontend_svc.templates.chat_template import ChatTemplate
from frontend_svc.templates.fitting import fit_messages, fit_tools
from frontend_svc.templates.history import History
from frontend_svc.templates.traits import find_traits
from signalbox.errors import InvalidRequestError


def test_half_of_a_character_in_arguments_is_the_clients_error() -> None:
    """JSON can escape half of a surrogate pair; a prompt with that could not be made tokens."""
    traits = find_traits(ChatTemplate("{% for m in messages %}{{ m | tojson }}{% endfor %}", {}))

    def fit(arguments: str) -> None:
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        fit_messages([{"role": "assistant", "content": None, "tool_calls": [call]}], traits)

    fit('{"a": "\\ud83d\\ude82"}')
    with pytest.raises(InvalidRequestError, match="half of a character") as caught:
        fit('{"a": "\\ud83d"}')
    assert caught.value.field == "messages[0].tool_calls[0].function.arguments"


@pytest.mark.parametrize("written", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_no_json_are_told_as_the_model_wrote_them(written: str) -> None:
    """A refusal, or a distorted history, would end the conversation of an agent; transformers tells them so, too."""
    template = ChatTemplate(
        "{% for m in messages %}{{ m.tool_calls[0].function.arguments | tojson }}{% endfor %}", {}
    )
    history = History()
    history.call("1", "f", f'{{"a": {written}}}')
    (message,) = fit_messages(history.messages, find_traits(template))
    assert template.render([message]) == f'{{"a": {written.replace("1e999", "Infinity")}}}'


@pytest.mark.parametrize("written", ["{", "[1]", "[" * 100_000, "1" * 5000])
def test_arguments_that_are_no_object_are_told_as_a_string(written: str) -> None:
    history = History()
    history.call("1", "f", written)
    told = history.messages[0]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(told) == {"arguments": written}


@pytest.mark.parametrize(
    ("written", "told"),
    [("'// ' + t.function.description", "// "), ("t.function.description", ""), ("t.function.name", "look")],
)
def test_a_template_that_needs_descriptions_is_told_empty_ones(written: str, told: str) -> None:
    """gpt-oss's fails at a tool without one; one that does not is told the tool as the client has it."""
    template = ChatTemplate("{% for t in tools %}{{ " + written + " }}{% endfor %}", {})
    tools = [{"type": "function", "function": {"name": "look"}}]
    fitted = fit_tools(tools, find_traits(template))
    assert template.render([], fitted) == told
    assert (fitted == tools) == ("+" not in written)
