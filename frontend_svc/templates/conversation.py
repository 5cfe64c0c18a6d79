"""What is to be rendered: a conversation as clients tell it, and what goes to the template beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Plain = dict[str, Any]
"""A message as OpenAI's API has it: `content` a string, parts or None; arguments of calls as text."""


def content_text(content: str | Sequence[Plain] | None) -> str:
    """The text of a message's content."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content or ())


@dataclass(frozen=True)
class Conversation:
    """One prompt to be."""

    messages: Sequence[Plain]
    tools: Sequence[Mapping[str, Any]] = ()
    documents: Sequence[Mapping[str, Any]] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    """What else the template is told, by name: `enable_thinking`, `reasoning_effort` and the like."""
    variables_path: Mapping[str, str] = field(default_factory=dict)
    """How the client's body calls a variable, where it is not chat_template_kwargs and the name."""
    wishes: Mapping[str, Any] = field(default_factory=dict)
    """Variables that only a template hears which reads them; to others they do not matter."""
    add_generation_prompt: bool = True
    """End with what begins the assistant's next message."""
    continue_final_message: bool = False
    """End within the last message, for the model to write it on."""
    regroups: bool = False
    """Anybody may speak at any time, whether or not the template takes it so."""
    path: str = "messages"
    """Where the messages stand in the client's body, for errors."""
