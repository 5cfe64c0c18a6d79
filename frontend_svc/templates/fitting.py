"""Messages as clients tell them, made into what one template wants to be told."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from frontend_svc.templates.conversation import Plain
from frontend_svc.templates.traits import REASONING, NullContent, Traits
from signalbox.errors import InvalidRequestError


def fit_messages(messages: Sequence[Plain], traits: Traits, path: str = "messages") -> list[Plain]:
    """All, in the ways that `traits` name. Raises InvalidRequestError, which names a wrong one below `path`."""
    return [_fit(message, traits, f"{path}[{index}]") for index, message in enumerate(messages)]


def fit_tools(tools: Sequence[Mapping[str, Any]], traits: Traits) -> Sequence[Mapping[str, Any]]:
    """With a description each, where the template refuses those without."""
    if not traits.needs_descriptions:
        return tools
    return [dict(tool) | {"function": {"description": ""} | tool["function"]} for tool in tools]


def _fit(message: Plain, traits: Traits, path: str) -> Plain:
    fitted = {name: value for name, value in message.items() if value is not None}
    if fitted["role"] == "developer" and not traits.knows_developer:
        fitted["role"] = "system"
    if calls := fitted.get("tool_calls"):
        fitted["tool_calls"] = [
            _fit_call(call, traits, f"{path}.tool_calls[{index}]") for index, call in enumerate(calls)
        ]
    if content := fitted.get("content"):
        fitted["content"] = _fit_content(content, fitted["role"], traits)
    elif not calls:
        fitted["content"] = ""
    elif "content" not in fitted and traits.null_content is not NullContent.LEFT_OUT:
        fitted["content"] = None if traits.null_content is NullContent.NONE else ""
    elif traits.empty_hides_calls:
        fitted["content"] = None
    return _fit_reasoning(fitted, traits)


def _fit_content(content: str | list[Plain], role: str, traits: Traits) -> Any:
    """Parts that the template does not take are joined by line ends, as in vLLM."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if role in traits.needs_parts else content
    if role in traits.takes_parts:
        return content
    return "\n".join(part["text"] for part in content)


def _fit_call(call: Plain, traits: Traits, path: str) -> Plain:
    path += ".function.arguments"
    text = call["function"]["arguments"] or "{}"
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{path} is not JSON: {error}", field=path) from None
    if "\\u" in text and not _is_unicode(arguments):
        raise InvalidRequestError(f"{path} has half of a character", field=path)
    if not isinstance(arguments, dict):
        raise InvalidRequestError(f"{path} is not a JSON object", field=path)
    told = text if traits.arguments_as_text else arguments
    return call | {"function": call["function"] | {"arguments": told}}


def _is_unicode(value: Any) -> bool:
    """An escape of JSON can stand for half of a surrogate pair, which no tokenizer takes."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _fit_reasoning(message: Plain, traits: Traits) -> Plain:
    thought = next((message[name] for name in REASONING if name in message), None)
    if thought is None:
        return message
    content = message.get("content")
    if traits.refuses_both and message.get("tool_calls") and content and isinstance(content, str):
        message = message | {"content": ""}
        thought = f"{thought}\n\n{content}"
    return message | dict.fromkeys(REASONING, thought)
