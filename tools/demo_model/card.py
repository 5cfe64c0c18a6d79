"""The card of a model: what it is, how it was made, what it writes."""

from __future__ import annotations

import math
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tools.demo_model.batches import LONG_STEP_EVERY, Data
from tools.demo_model.checkpoints import Progress, run_key
from tools.demo_model.corpus import HOLD_OUT_EVERY
from tools.demo_model.network import count_parameters, measure_loss
from tools.demo_model.settings import MAX_CONTEXT, Settings
from tools.demo_model.tokenizer import VOCAB_SIZE

PROMPTS = ["def quicksort(", "import os\n\ndef read_json(path):\n", "class Stack:\n    def __init__(self"]

NAMES = {"demo_model": "signalbox demo model", "draft": "signalbox demo model's draft model"}
"""Titles of the cards of the models that are shipped, by folder."""

CARD = """\
---
license: psf-2.0
language: [code]
library_name: transformers
pipeline_tag: text-generation
---

# {name}

A small language model of Python source, trained from scratch by `tools/demo_model` so that
signalbox can be tried, tested and shown without a download. It is a demo: it continues a text with what looks
like Python and is seldom right. It knows no English beyond docstrings and follows no instructions.

## Model

Qwen3 architecture, {parameters:,} parameters (embedding and head are tied), stored in bfloat16. Hidden size
{hidden_size}, {num_layers} layers, {num_heads} query heads and {num_kv_heads} key/value heads of {head_dim},
intermediate size {intermediate_size}, context {context}. Byte-level BPE of {vocab} tokens, trained on the
same data; decoding gives back any text exactly.

## Data and licence

Sources of the standard library of Python {python}, without tests, `encodings` and `pydoc_data`: {files}
files, {bytes:,} bytes, every {hold_out}th file ({held_out_files}) held out. With the module-level functions
once more as documents of their own that makes {train_tokens:,} training tokens. The data are under the
Python Software Foundation License 2.0 (PSF-2.0), copyright Python Software Foundation; the weights are
derived from them and carry the same licence.

## Training

| | |
|---|---|
| State | {state} |
| Training loss (mean of the last steps) | {train_loss:.4f} nats per token |
| Held-out loss, windows of {sequence_length} | {held_out_loss:.4f} nats per token |
| Held-out loss, windows of {context} | {long_loss:.4f} nats per token, {bits_per_byte:.3f} bits per byte |
| Tokens seen | {tokens:,} in {step:,} steps ({epochs:.1f} passes over the data) |
| Time | {minutes_spent:.1f} minutes, {speed:.0f} tokens/s |
| Machine | {machine} |
| Optimiser | Muon (peak {muon_lr}) for matrices, AdamW (peak {adam_lr}) for the rest, linear decay |
| Command | `{command}` |

The schedule follows elapsed wall-clock time, so the same seed gives a slightly different model each time, and
a busy machine sees fewer tokens. The budget may change where a run is resumed; the command shows the last.

## Prompts and chat

Give it the beginning of a Python file or function. There is no begin-of-text token; `<|endoftext|>` ends a
document and stops generation. The chat template is that of a completer: the last message is the text to be
completed, as it stands; before it, system and user messages become comment lines (`# ...`) and assistant
messages stay code. Without `add_generation_prompt` the text is closed with `<|endoftext|>`. `<|im_start|>`,
`<|im_end|>` and `<|pad|>` are in the vocabulary but were never trained.

## Samples

{samples}
## Limits

Trained on a few million tokens of one library: it repeats itself, invents names, and may recite passages of
the standard library. Text other than Python is far outside its data. Most steps had a context of
{sequence_length}, one in {long_every} the full {context}. Do not use its output as code.
"""


def complete(model: Any, tokenizer: Any, prompt: str, **sampling: Any) -> str:
    ids = torch.tensor([tokenizer.encode(prompt)])
    with torch.inference_mode():
        output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=120, **sampling)
    return str(tokenizer.decode(output[0]))


def write_samples(folder: Path, seed: int) -> str:
    """Completions by the exported files, as a reader of the card would get them."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    parts = []
    for prompt in PROMPTS:
        greedy = complete(model, tokenizer, prompt, do_sample=False)
        torch.manual_seed(seed)
        sampled = complete(model, tokenizer, prompt, do_sample=True, temperature=0.7, top_p=0.95, top_k=0)
        for kind, text in (("Greedy", greedy), ("Temperature 0.7, top-p 0.95", sampled)):
            parts.append(f"{kind}, prompt `{prompt!r}`:\n\n```python\n{text}\n```\n")
    return "\n".join(parts)


def describe_machine(threads: int) -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (
        f"{names[0] if names else platform.machine()}, {threads} threads, no GPU, torch {torch.__version__}"
    )


def format_command(settings: Settings) -> str:
    """The options that shape the weights, whichever call exported them."""
    values = {**run_key(settings), "minutes": settings.minutes, "threads": settings.threads}
    options = [f"--{name.replace('_', '-')} {value}" for name, value in values.items()]
    return " ".join(["python -m tools.demo_model", *options])


def describe_run(settings: Settings, data: Data, progress: Progress) -> dict[str, Any]:
    share = progress.elapsed_s / settings.seconds
    return {
        "state": "finished" if share >= 1 else f"interim, after {share:.0%} of the time budget",
        "epochs": progress.tokens / len(data.train),
        "minutes_spent": progress.elapsed_s / 60,
        "speed": progress.tokens / max(progress.elapsed_s, 1e-9),
        "machine": describe_machine(settings.threads),
        "command": format_command(settings),
        "python": platform.python_version(),
        "files": data.corpus.files,
        "bytes": data.corpus.bytes,
        "held_out_files": len(data.corpus.held_out),
        "train_tokens": len(data.train),
        **asdict(progress),
    }


def describe_model(settings: Settings, model: Any, data: Data) -> dict[str, Any]:
    long_loss = measure_loss(model, data.held_out, MAX_CONTEXT)
    tokens_per_byte = len(data.held_out) / sum(len(text.encode()) for text in data.corpus.held_out)
    return {
        "name": NAMES.get(settings.out.name, settings.out.name),
        "parameters": count_parameters(model),
        "held_out_loss": measure_loss(model, data.held_out, settings.sequence_length),
        "long_loss": long_loss,
        "bits_per_byte": long_loss * tokens_per_byte / math.log(2),
    }


def write_card(settings: Settings, folder: Path, model: Any, data: Data, progress: Progress) -> None:
    values = {
        **describe_run(settings, data, progress),
        **describe_model(settings, model, data),
        "context": MAX_CONTEXT,
        "vocab": VOCAB_SIZE,
        "hold_out": HOLD_OUT_EVERY,
        "long_every": LONG_STEP_EVERY,
    }
    samples = write_samples(folder, settings.seed)
    (folder / "README.md").write_text(CARD.format(**asdict(settings), **values, samples=samples))
