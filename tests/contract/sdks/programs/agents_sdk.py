"""The OpenAI Agents SDK's loop. Reads arrays [URL, MODEL, API, STREAMED, FORCED, TYPED], TYPED may be missing, one a
line, and prints a JSON object for each."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel, Field

asked: list[str] = []


class Forecast(BaseModel):
    """What an agent with a type of its output has to say."""

    city: str
    sunny: bool


# Bounded, so that a small model that is made to call comes to an end, whatever it writes.
City = Annotated[str, Field(max_length=40)]


@function_tool
def weather(city: City) -> str:
    """Tells the weather of a city."""
    asked.append(city)
    return f"Sunny in {city}."


async def main(url: str, model: str, api: str, *, is_streamed: bool, is_forced: bool, is_typed: bool) -> None:
    set_tracing_disabled(True)
    asked.clear()
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)
    kind = OpenAIResponsesModel if api == "responses" else OpenAIChatCompletionsModel
    agent = Agent(
        name="forecaster",
        instructions="Be brief.",
        model=kind(model=model, openai_client=client),
        tools=[weather],
        output_type=Forecast if is_typed else None,
        model_settings=ModelSettings(tool_choice="required" if is_forced else "auto", max_tokens=200),
        # A model whose template knows no tools can only be forced to call: the result is the answer then.
        tool_use_behavior="stop_on_first_tool" if is_forced else "run_llm_again",
    )
    question = "How is the weather in Bonn?"
    kinds: list[str] = []
    if is_streamed:
        result = Runner.run_streamed(agent, question)
        kinds = [event.type async for event in result.stream_events()]
    else:
        result = await Runner.run(agent, question)
    print(
        json.dumps({"asked": asked, "said": str(result.final_output), "events": sorted(set(kinds))}),
        flush=True,
    )


if __name__ == "__main__":
    for line in sys.stdin:
        url, model, api, *switches = json.loads(line)
        is_streamed, is_forced, is_typed = (switch == "yes" for switch in [*switches, "no"][:3])
        asyncio.run(main(url, model, api, is_streamed=is_streamed, is_forced=is_forced, is_typed=is_typed))
