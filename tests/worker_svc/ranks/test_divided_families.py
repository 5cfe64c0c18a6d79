"""Every family that is said to be served by several ranks (RK6) is, with transformers' greedy tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker_svc.ranks.groups import assert_transformers_own, group
from tools.make_random_model import PRESETS, make_model
from worker_svc.runner.split.plan import DIVIDED

SOME = {"tiny-phi3", "tiny-llama4", "tiny-gemma4-shared"}
"""Those that differ most from the families of test_group_tokens.py."""
NOT_DIVIDED = {"tiny-cohere-normed"}
"""Norms with a weight for each head of the whole, which a part does not have."""


def family_of(preset: str) -> str:
    config_class, settings = PRESETS[preset]
    return str(config_class(**settings).model_type)


PRESETS_DIVIDED = [name for name in PRESETS if family_of(name) in DIVIDED and name not in NOT_DIVIDED]


def test_all_families_have_a_model_here() -> None:
    assert {family_of(name) for name in PRESETS_DIVIDED} == DIVIDED


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "preset",
    [name if name in SOME else pytest.param(name, marks=pytest.mark.soak) for name in PRESETS_DIVIDED],
)
def test_greedy_tokens_of_two_ranks_are_transformers_own(preset: str, tmp_path: Path) -> None:
    path = make_model(preset, tmp_path, seed=1)
    with group(path) as (runner, _):
        assert_transformers_own(path, runner)
