"""LangChain's loop. Reads arrays [URL, MODEL, API, STREAMED, FORCED], one a line, and prints a JSON object for each."""

from __future__ import annotations

import json
import sys
from functools import reduce
from operator import add
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field


class Place(BaseModel):
    """Bounded, so that a small model that is made to call comes to an end, whatever it writes."""

    city: str = Field(max_length=40)


@tool(args_schema=Place)
def weather(city: str) -> str:
    """Tells the weather of a city."""
    return f"Sunny in {city}."


def make_model(url: str, model: str, api: str) -> Any:
    """The chat model that speaks this API."""
    if api == "messages":
        return ChatAnthropic(
            model_name=model,
            base_url=url,
            api_key="none",
            max_retries=0,
            timeout=120,
            max_tokens_to_sample=200,
        )
    return ChatOpenAI(
        model=model,
        base_url=f"{url}/v1",
        api_key="none",
        max_retries=0,
        timeout=120,
        max_tokens=200,
        use_responses_api=api == "responses",
        stream_usage=True,
    )


def main(url: str, model: str, api: str, *, is_streamed: bool, is_forced: bool) -> None:
    chat = make_model(url, model, api)

    def ask(runnable: Any, messages: list[Any]) -> Any:
        return reduce(add, runnable.stream(messages)) if is_streamed else runnable.invoke(messages)

    messages: list[Any] = [SystemMessage("Be brief."), HumanMessage("How is the weather in Bonn?")]
    calling = chat.bind_tools([weather], tool_choice="any" if is_forced else "auto")
    asked: list[str] = []
    answer = ask(calling, messages)
    while answer.tool_calls:
        messages.append(answer)
        for call in answer.tool_calls:
            asked.append(call["args"]["city"])
            messages.append(ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]))
        # A model whose template knows no tools can only be forced to call: it answers without them.
        answer = ask(chat if is_forced else calling, messages)
    said = answer.text if isinstance(answer.text, str) else answer.text()
    print(
        json.dumps({"asked": asked, "said": said, "tokens": answer.usage_metadata["output_tokens"]}),
        flush=True,
    )


if __name__ == "__main__":
    for line in sys.stdin:
        url, model, api, *switches = json.loads(line)
        is_streamed, is_forced = (switch == "yes" for switch in switches)
        main(url, model, api, is_streamed=is_streamed, is_forced=is_forced)
