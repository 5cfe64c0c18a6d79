"""Tool loops of SDKs, each SDK in its own process: the model calls, the tool answers, the model says what it was."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
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


class Program:
    """An SDK that has been imported, which takes ten seconds and more, and runs one loop after the other."""

    def __init__(self, python: Path, name: str, log: Path) -> None:
        self._log = log
        # Without bytecode each program would compile all its packages anew.
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [python, PROGRAMS / f"{name}.py"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    async def run(self, *arguments: str) -> dict[str, Any]:
        """What it tells of one loop; it fails with its log where that raised, or takes too long."""
        try:
            async with asyncio.timeout(PROGRAM_TIMEOUT_S):
                return await asyncio.to_thread(self._run, arguments)
        except TimeoutError:
            pytest.fail(self._log.read_text())
        finally:
            if sys.exc_info()[0] is not None:
                self.kill()

    def _run(self, arguments: Sequence[str]) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps(arguments).encode() + b"\n")
        stdin.flush()
        for line in stdout:
            if line.startswith(b'{"asked"'):
                return dict(json.loads(line))
        self._process.wait()
        raise AssertionError(self._log.read_text())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


Run = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Has an SDK run a loop."""
    python, programs = get_python(), dict[str, Program]()

    async def run_one(name: str, *arguments: str) -> dict[str, Any]:
        if name not in programs or not programs[name].is_running:
            programs[name] = Program(python, name, tmp_path_factory.mktemp(name) / "log")
        return await programs[name].run(*arguments)

    yield run_one
    for program in programs.values():
        program.kill()


# ---- a model that calls by itself


@pytest.fixture
async def model(tmp_path: Path) -> AsyncIterator[ScriptedModel]:
    async with scripted_model(make_directory(tmp_path / "model")) as model:
        model.serve(lambda prompt: TURNS[min(prompt.count("<|im_start|>assistant"), len(TURNS)) - 1])
        yield model


@pytest.mark.parametrize("is_streamed", ["no", "yes"])
@pytest.mark.parametrize(("program", "api"), LOOPS)
async def test_a_loop(run: Run, model: ScriptedModel, program: str, api: str, is_streamed: str) -> None:
    """LM1, LM5: the call arrives, its result is told to the model, and the answer is the loop's."""
    told = await run(program, model.url, MODEL, api, is_streamed, "no")
    assert told["asked"] == ["Bonn"]
    assert told["said"].strip().endswith("It is sunny in Bonn.")
    first, second = model.prompts
    assert "Sunny in Bonn." not in first
    assert "<tool_response>\nSunny in Bonn.\n</tool_response>" in second
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn"}}\n</tool_call>' in second


@pytest.mark.parametrize("is_streamed", ["no", "yes"])
@pytest.mark.parametrize("api", APIS["agents_sdk"])
async def test_a_loop_to_a_typed_answer(run: Run, model: ScriptedModel, api: str, is_streamed: str) -> None:
    """LM15: the model calls, though its answer has a form; the form is told with each turn."""
    call = think("I have to look.") + write_call("weather", city="Bonn")
    turns = (call, think("Now I know.") + '{"city": "Bonn", "sunny": true}')
    model.serve(lambda prompt: turns[min(prompt.count("<|im_start|>assistant"), len(turns)) - 1])
    told = await run("agents_sdk", model.url, MODEL, api, is_streamed, "no", "yes")
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
async def test_a_forced_loop(run: Run, ring: RunningRing, program: str, api: str) -> None:
    """SmolLM2 has no words for calls: a grammar makes it call, and it answers when it is asked without tools."""
    told = await run(program, ring.url, "smollm2", api, "yes", "yes")
    assert told["asked"] and all(isinstance(city, str) for city in told["asked"])
    assert told["said"].strip()
