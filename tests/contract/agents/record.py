"""Records conversations anew: python -m tests.contract.agents.record [NAME ...]. Fetches the agents."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.contract.agents import recordings
from tests.contract.agents.agents import Outcome
from tests.contract.agents.binaries import WANTED
from tests.contract.agents.model import make_directory
from tests.contract.agents.recorder import Exchange, recording
from tests.contract.agents.scenarios import NOTES, PLACE, RECORDED, SCENARIOS, Scenario, prepare
from tests.contract.agents.scripted import ScriptedModel, scripted_model

SHOWN_PLACE = "/home/user/work"
"""What recordings call the folder that an agent worked in."""


async def run(scenario: Scenario, model: ScriptedModel, home: Path) -> tuple[list[Outcome], list[Exchange]]:
    """The agent's task, in a home of its own, and all that it sent."""
    async with recording(model.url) as recorder:
        agent = scenario.agent(home, recorder.url)
        prepare(agent.work)
        model.serve(scenario.script(agent.work))
        outcomes = [await agent.run(*arguments) for arguments in scenario.runs]
    return outcomes, recorder.exchanges


def _with_place(value: object, place: str) -> object:
    if isinstance(value, list):
        return [_with_place(each, place) for each in value]
    if isinstance(value, dict):
        return {name: _with_place(each, place) for name, each in value.items()}
    return value.replace(place, SHOWN_PLACE) if isinstance(value, str) else value


async def record(names: Sequence[str]) -> None:
    """Writes their files."""
    os.environ.setdefault(WANTED, "1")
    with tempfile.TemporaryDirectory() as folder:
        async with scripted_model(make_directory(Path(folder) / "model")) as model:
            for name in names:
                scenario, home = SCENARIOS[name], Path(folder) / name
                outcomes, exchanges = await run(scenario, model, home)
                for exchange in exchanges:
                    exchange.body = _with_place(exchange.body, str(home / "work"))
                ours = [argument for arguments in scenario.runs for argument in arguments if " " in argument]
                ours += [NOTES.strip(), *(turn.replace(PLACE, SHOWN_PLACE) for turn in scenario.turns)]
                recordings.write(name, exchanges, ours, model.count)
                print(name, [outcome.said[:40] for outcome in outcomes], len(exchanges), "calls")


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1:] or RECORDED))
