"""Codex and Claude Code themselves, each to the end of a task, with a model whose words are written here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.agents.model import make_directory
from tests.contract.agents.record import run
from tests.contract.agents.scenarios import SCENARIOS
from tests.contract.agents.scripted import ScriptedModel, scripted_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
async def model(tmp_path: Path) -> AsyncIterator[ScriptedModel]:
    async with scripted_model(make_directory(tmp_path / "model")) as model:
        yield model


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_task_ends_well(model: ScriptedModel, name: str, tmp_path: Path) -> None:
    """LM12, and all that both faces are: the agent calls what the model wrote, tells it what came of that, and says
    the model's last words. Nothing that it sends is refused."""
    scenario = SCENARIOS[name]
    outcomes, exchanges = await run(scenario, model, tmp_path / "home")
    assert [outcome.status for outcome in outcomes] == [0] * len(scenario.runs), outcomes
    for outcome, said in zip(outcomes, scenario.said, strict=True):
        assert outcome.said.startswith(said), outcome
    refused = [(each.target, each.status, each.answer[:300]) for each in exchanges if each.status != 200]
    assert not refused and exchanges
    assert (tmp_path / "home" / "work" / "notes.txt").read_text() == scenario.notes
