"""The files of tests.parsing.golden say what is so: `python -m tests.parsing.golden --write` writes them anew."""

from __future__ import annotations

import pytest

from frontend_svc.text.parsing.families import TOOLS as FAMILIES_OF_TOOLS
from tests.parsing.golden.features import features_of
from tests.parsing.golden.models import MODELS
from tests.parsing.golden.record import FILES, make_golden, make_prompt, path_of, read_golden, read_tokens

EACH = [(way, name) for way, model in MODELS.items() for name in features_of(model)]


def test_every_file_is_there_and_compared() -> None:
    assert {path_of(MODELS[way], name) for way, name in EACH} == set(FILES.rglob("*.txt"))
    shown = {model.family.tools for model in MODELS.values()}
    assert shown | {"llama4_json"} == set(FAMILIES_OF_TOOLS)


@pytest.mark.parametrize(("way", "name"), EACH)
def test_what_is_read_of_an_output(way: str, name: str) -> None:
    """LM3, LM4, LM5: streamed parts and the message, behind the prompt that the file has."""
    model = MODELS[way]
    golden = read_golden(path_of(model, name))
    made = make_golden(model, features_of(model)[name], golden.prompt, golden.prompt_tokens)
    assert made.write() == path_of(model, name).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("way", [way for way, model in MODELS.items() if model.template])
async def test_the_prompts_of_real_templates(way: str) -> None:
    """LM8: and their tokens, where the vocabulary is at hand."""
    model = MODELS[way]
    for name, feature in features_of(model).items():
        golden = read_golden(path_of(model, name))
        assert await make_prompt(model, feature) == (golden.prompt, golden.prompt_tokens or ()), name


@pytest.mark.slow
@pytest.mark.parametrize("way", [way for way, model in MODELS.items() if model.vocabulary])
def test_the_tokens_of_real_vocabularies(way: str) -> None:
    """LM2, LM3: the output as its model's tokens, one by one, gives the message of the file."""
    model = MODELS[way]
    for name, feature in features_of(model).items():
        golden = read_golden(path_of(model, name))
        assert read_tokens(model, feature, golden) == golden.message, name
