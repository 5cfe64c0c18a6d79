"""litellm's loop. Reads arrays [URL, MODEL, API, STREAMED, FORCED], one a line, and prints a JSON object for each."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no look at the network for prices

import litellm

# Bounded, so that a small model that is made to call comes to an end, whatever it writes.
CITY = {"type": "string", "maxLength": 40}
SCHEMA = {"type": "object", "properties": {"city": CITY}, "required": ["city"]}
FUNCTION = {"name": "weather", "description": "Tells the weather of a city.", "parameters": SCHEMA}
QUESTION = "How is the weather in Bonn?"


def complete(options: dict[str, Any], messages: list[Any], *, is_streamed: bool) -> Any:
    """The message that one call makes."""
    if not is_streamed:
        return litellm.completion(messages=messages, **options).choices[0].message
    chunks = list(litellm.completion(messages=messages, stream=True, **options))
    return litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message


def loop_of_chat(options: dict[str, Any], *, is_streamed: bool, is_forced: bool) -> tuple[list[str], str]:
    """Over chat completions or messages, whatever the provider is."""
    tools = {"tools": [{"type": "function", "function": FUNCTION}]}
    tools |= {"tool_choice": "required" if is_forced else "auto"}
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    asked: list[str] = []
    answer = complete(options | tools, messages, is_streamed=is_streamed)
    while answer.tool_calls:
        messages.append(answer.model_dump())
        for call in answer.tool_calls:
            city = json.loads(call.function.arguments)["city"]
            asked.append(city)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"Sunny in {city}."})
        # litellm wants the tools of a history told: a model that can only be forced to call is told to call none.
        choice = {"tool_choice": "none"} if is_forced else {}
        answer = complete(options | tools | choice, messages, is_streamed=is_streamed)
    return asked, answer.content or ""


def respond(options: dict[str, Any], given: list[Any], *, is_streamed: bool) -> list[Any]:
    """The items that one call makes."""
    if not is_streamed:
        answer = litellm.responses(input=given, **options)
        return [item if isinstance(item, dict) else item.model_dump() for item in answer.output]
    *_, last = litellm.responses(input=given, stream=True, **options)
    return [item if isinstance(item, dict) else item.model_dump() for item in last.response.output]


def loop_of_responses(
    options: dict[str, Any], *, is_streamed: bool, is_forced: bool
) -> tuple[list[str], str]:
    """Over responses."""
    tools = {"tools": [{"type": "function", **FUNCTION}], "tool_choice": "required" if is_forced else "auto"}
    given: list[Any] = [{"role": "user", "content": QUESTION}]
    asked: list[str] = []
    items = respond(options | tools, given, is_streamed=is_streamed)
    while calls := [item for item in items if item["type"] == "function_call"]:
        given += items
        for call in calls:
            city = json.loads(call["arguments"])["city"]
            asked.append(city)
            output = {
                "type": "function_call_output",
                "call_id": call["call_id"],
                "output": f"Sunny in {city}.",
            }
            given.append(output)
        items = respond(options if is_forced else options | tools, given, is_streamed=is_streamed)
    texts = [part["text"] for item in items if item["type"] == "message" for part in item["content"]]
    return asked, "".join(texts)


def main(url: str, model: str, api: str, *, is_streamed: bool, is_forced: bool) -> None:
    provider, base = ("anthropic", url) if api == "messages" else ("openai", f"{url}/v1")
    options = {"model": f"{provider}/{model}", "api_base": base, "api_key": "none", "timeout": 120}
    options |= {"num_retries": 0, "max_output_tokens" if api == "responses" else "max_tokens": 200}
    loop = loop_of_responses if api == "responses" else loop_of_chat
    asked, said = loop(options, is_streamed=is_streamed, is_forced=is_forced)
    print(json.dumps({"asked": asked, "said": said}), flush=True)


if __name__ == "__main__":
    for line in sys.stdin:
        url, model, api, *switches = json.loads(line)
        is_streamed, is_forced = (switch == "yes" for switch in switches)
        main(url, model, api, is_streamed=is_streamed, is_forced=is_forced)
