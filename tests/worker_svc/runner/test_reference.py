"""What outputs are compared with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worker_svc.runner.reference import (
    assert_greedy,
    assert_near_the_best,
    continuation,
    generate,
    load_reference,
    make_prompts,
)

NUM_TOKENS = 12


@pytest.mark.parametrize("ends", [False, True])
def test_a_continuation_is_what_generate_gives(
    model_dir: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """Whatever is proposed: all of it, its beginning, nothing, or something else from some token on."""
    path, prompt = model_dir("tiny-llama"), make_prompts()[4]
    greedy, _ = generate(path, tuple(prompt), NUM_TOKENS)
    model = load_reference(path)
    if ends:
        monkeypatch.setattr(model.generation_config, "eos_token_id", [greedy[7]])
        greedy = greedy[: greedy.index(greedy[7]) + 1]
    wrong = [*greedy[:2], greedy[2] + 1, *greedy[3:]]
    for proposed in (greedy, greedy[:3], [], wrong, [*greedy, 5, 6]):
        assert continuation(model, prompt, proposed, NUM_TOKENS) == greedy, proposed


def test_a_token_that_is_far_below_the_best_is_found(model_dir: Callable[[str], Path]) -> None:
    """Wherever it is; those behind it are judged behind it."""
    path, prompt = model_dir("tiny-llama"), make_prompts()[4]
    greedy, logits = generate(path, tuple(prompt), NUM_TOKENS)
    model = load_reference(path)
    assert assert_near_the_best(model, prompt, greedy) == 0
    second = int(logits[3].topk(2).indices[1])
    gap = float(logits[3].max() - logits[3, second])
    turned = greedy[:3] + continuation(model, [*prompt, *greedy[:3], second], [], NUM_TOKENS - 4)
    turned.insert(3, second)
    assert assert_near_the_best(model, prompt, turned, gap + 0.01) == 1
    with pytest.raises(AssertionError, match="token 3 is"):
        assert_near_the_best(model, prompt, turned, gap - 0.01)


@pytest.mark.parametrize("at", [0, 7, NUM_TOKENS - 1])
def test_a_token_that_is_not_the_greedy_one_is_found(model_dir: Callable[[str], Path], at: int) -> None:
    """The first, one between, the last; and an output that is too short."""
    path, prompt = model_dir("tiny-llama"), make_prompts()[4]
    greedy, logits = generate(path, tuple(prompt), NUM_TOKENS)
    assert assert_greedy(greedy, path, prompt, NUM_TOKENS) == 0
    wrong = [*greedy]
    wrong[at] = int(logits[at].topk(2).indices[1])
    with pytest.raises(AssertionError, match=f"token {at} is {wrong[at]}, not {greedy[at]}"):
        assert_greedy(wrong, path, prompt, NUM_TOKENS)
    with pytest.raises(AssertionError):
        assert_greedy(greedy[:-1], path, prompt, NUM_TOKENS)
