"""Messages of clients that no template can be told."""

from __future__ import annotations

import pytest

from frontend_svc.templates.chat_template import ChatTemplate
from frontend_svc.templates.fitting import fit_messages
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
