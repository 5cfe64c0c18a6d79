"""Compares tiny models of transformers' model types, most of which no other test has, with transformers.

    python -m tests.worker_svc.runner.model_types.run [TYPE ...]

Without types: all causal language models that transformers knows but those of `COMPARED_FAMILIES`. Each is loaded as a
worker loads it and gets prompts that are shorter and longer than its window, in chunks and beside each other; each
greedy token has to have the best logit in one eager forward of transformers, or one as good. Prints a row for each:

equal: all tokens are right. refused: a ModelLoadError. WRONG: another token. CRASHED: any other exception, at load or
in a step. not made: transformers makes no tiny model of the type by this rule. Ends with 1 if any is WRONG or CRASHED,
or refused without its name.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from tests.worker_svc.runner.model_types.made import (
    MODEL_TYPES,
    SETTINGS,
    CannotMakeError,
    save_tiny,
    tiny_config,
)
from tests.worker_svc.runner.reference import make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import Driver
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.support import COMPARED_FAMILIES

LENGTHS, NUM_TOKENS, CHUNK = (3, 40, 100), 8, 30
BOUND = 1e-3
"""How far below the best a token's logit may be: what is nearer is a tie that rounding decides."""
EQUAL, REFUSED, WRONG, CRASHED, NOT_MADE = "equal", "refused", "WRONG", "CRASHED", "not made"
TIMEOUT_S = 600
BATCH = 12
"""Types that one process compares: imports take longer than a type, and a crash ends those behind it alone."""


@dataclass(frozen=True)
class Outcome:
    """What came of a type."""

    kind: str
    told: str = ""
    """Why it was refused, how far a wrong token was below the best, or what was raised."""


def compare(path: Path, **settings: Any) -> Outcome:
    """Serves the model in `path`, in process, and compares its greedy tokens with transformers' logits; `settings` are
    those of the runner."""
    try:
        runner = make_runner(path, **settings)
    except ModelLoadError as error:
        return Outcome(REFUSED, str(error).replace(str(path), "DIR"))
    except Exception as error:
        return Outcome(CRASHED, f"at load: {error!r}")
    driver, prompts = Driver(runner), make_prompts(LENGTHS)
    requests = [driver.add(prompt, NUM_TOKENS) for prompt in prompts]
    try:
        driver.run(chunk_size=CHUNK)
    except Exception as error:
        return Outcome(CRASHED, f"in a step: {error!r}")
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    worst = max(
        below_the_best(model, prompt, request.output)
        for prompt, request in zip(prompts, requests, strict=True)
    )
    return Outcome(EQUAL) if worst < BOUND else Outcome(WRONG, f"a token is {worst:.2g} below the best")


def below_the_best(model: Any, prompt: list[int], output: list[int]) -> float:
    """How far the logit of any token of an output is below the best after those before it, at most."""
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *output[:-1]]]), use_cache=False).logits[0, len(prompt) - 1 :]
    chosen = logits.gather(1, torch.tensor(output)[:, None])[:, 0]
    return float((logits.max(-1).values - chosen).max())


def outcome_of(model_type: str) -> Outcome:
    """What comes of a tiny model of the type."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            path = save_tiny(tiny_config(model_type), Path(directory) / "model")
        except CannotMakeError as error:
            return Outcome(NOT_MADE, str(error))
        return compare(path, **SETTINGS.get(model_type, {}))


def is_fault(model_type: str, outcome: Outcome) -> bool:
    """Whether a newcomer would be served wrong, or told nothing that helps."""
    return outcome.kind in (WRONG, CRASHED) or (outcome.kind == REFUSED and model_type not in outcome.told)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("types", nargs="*", help="model types; none: all that no other test has")
    parser.add_argument("--here", action="store_true", help="in this process")
    options = parser.parse_args()
    known = [*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *(each for each in MODEL_TYPES if ":" in each)]
    types = options.types or [name for name in known if name not in COMPARED_FAMILIES]
    if not options.here:
        return max(run_apart(types[first : first + BATCH]) for first in range(0, len(types), BATCH))
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    has_fault = False
    for model_type in types:
        outcome = outcome_of(model_type)
        fault = is_fault(model_type.partition(":")[0], outcome)
        has_fault |= fault
        print(f"| {model_type} | {outcome.kind} | {' '.join(outcome.told.split())} |", flush=True)
    return int(has_fault)


def run_apart(types: list[str]) -> int:
    """Runs some types in a process of their own; 1 if any has a fault."""
    command = [sys.executable, "-m", __spec__.name, "--here", *types]
    try:
        return int(subprocess.run(command, timeout=TIMEOUT_S, check=False).returncode != 0)
    except subprocess.TimeoutExpired:
        print(f"{TIMEOUT_S} s are over for {', '.join(types)}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
