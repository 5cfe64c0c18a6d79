"""What a worker is told of a bound on reasoning (LM14)."""

from __future__ import annotations

import pytest

from frontend_svc.text.parsing.budget import reasoning_budget
from frontend_svc.text.parsing.families import REASONING
from frontend_svc.text.parsing.harmony import TAGS
from frontend_svc.text.parsing.language import Language
from signalbox.errors import UnsupportedError

FIELD = "thinking_token_budget"


@pytest.mark.parametrize("family", sorted(name for name, tags in REASONING.items() if tags is not None))
def test_the_tags_of_a_family(family: str) -> None:
    """LM14: tokens alone are counted and forced."""
    tags = REASONING[family]
    assert tags is not None
    budget = reasoning_budget(Language(family, "", {tags.begin: 5, tags.end: 6}), 9, True, FIELD)
    assert (budget.max_tokens, budget.is_open) == (9, True)
    assert (budget.begin_token_ids, budget.end_token_ids, budget.then_token_ids) == ((5,), (6,), ())


def test_harmony_goes_on_in_another_channel() -> None:
    """LM14: the whole way to the next header is forced."""
    ids = {tag: number for number, tag in enumerate(TAGS)}
    words = {"assistant": (20,), "analysis": (21,), "final": (22,), "commentary": (23, 24)}
    budget = reasoning_budget(Language("openai_gptoss", "openai", ids, words), 9, False, FIELD)
    start, channel, message = (ids[f"<|{name}|>"] for name in ("start", "channel", "message"))
    assert budget.begin_token_ids == (channel, 21, message)
    assert budget.end_token_ids == (ids["<|end|>"], start, 20, channel)
    assert budget.then_token_ids == (22, 23)


@pytest.mark.parametrize(
    ("language", "reason"),
    [(Language(), "not known to reason"), (Language("qwen3", "", {"<think>": 1}), "no tokens of the model")],
)
def test_a_bound_that_cannot_be_kept_is_refused(language: Language, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason) as caught:
        reasoning_budget(language, 5, False, FIELD)
    assert caught.value.field == FIELD
