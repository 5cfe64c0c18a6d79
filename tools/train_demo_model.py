"""Train the demo language model that signalbox ships: a small Qwen3 on the Python standard library.

Nothing is downloaded. The data are the sources of the Python that runs this script, the tokenizer is
trained on them, and a few million parameters take under an hour on two CPU cores. A run that was stopped
goes on from its last checkpoint when the same command is given again.
"""

import argparse
import ast
import hashlib
import json
import math
import os
import platform
import shutil
import sysconfig
import tempfile
import time
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, Qwen3Config, Qwen3ForCausalLM

VOCAB_SIZE = 4096
EOS, PAD = "<|endoftext|>", "<|pad|>"
SPECIAL_TOKENS = [EOS, "<|im_start|>", "<|im_end|>", PAD]

# A newline is always a token of its own and a run of spaces never joins the word behind it, so a prompt that
# ends at a line's end or in its indentation is cut into the same tokens as the same text inside a file.
SPLIT_PATTERN = r"\n|[^\S\n]{2,}| ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s"

CHAT_TEMPLATE = (
    "{%- for m in messages -%}"
    "{%- if loop.last or m['role'] == 'assistant' -%}{{ m['content'] }}"
    "{%- else -%}{{ '# ' + m['content'] | replace('\\n', '\\n# ') }}{%- endif -%}"
    "{%- if not loop.last -%}{{ '\\n' }}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if not add_generation_prompt -%}{{ eos_token }}{%- endif -%}"
)

EXCLUDED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
# Code-page tables and the text of the manual: two megabytes that teach no Python.
EXCLUDED_PACKAGES = {"encodings", "pydoc_data"}
HOLD_OUT_EVERY = 100

MAX_CONTEXT = 2048
LONG_STEP_EVERY = 16
WARMUP_SHARE = 0.02
CHECKPOINT_SECONDS = 120
LOG_SECONDS = 15

PROMPTS = ["def quicksort(", "import os\n\ndef read_json(path):\n", "class Stack:\n    def __init__(self"]


Optimizers = dict[str, torch.optim.Optimizer]


@dataclass(frozen=True)
class Settings:
    out: Path
    work_dir: Path
    minutes: float
    """Wall-clock training time, summed over the resumed runs; the learning rate falls to zero over it."""
    threads: int
    seed: int
    tokenizer: Path | None
    """Folder whose tokenizer is reused; None trains one on the data."""
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    batch_tokens: int
    sequence_length: int
    muon_lr: float
    adam_lr: float
    export_only: bool

    @property
    def seconds(self) -> float:
        return self.minutes * 60


@dataclass
class Progress:
    """What a checkpoint remembers besides tensors."""

    step: int = 0
    elapsed_s: float = 0.0
    tokens: int = 0
    train_loss: float = math.log(VOCAB_SIZE)
    """Moving average over about the last 50 steps, nats per token."""

    def add_step(self, loss: float, tokens: int, seconds: float) -> None:
        weight = max(0.02, 1 / (self.step + 1))
        self.train_loss += weight * (loss - self.train_loss)
        self.step += 1
        self.tokens += tokens
        self.elapsed_s += seconds


@dataclass(frozen=True)
class Corpus:
    train: list[str]
    held_out: list[str]
    files: int
    bytes: int

    @property
    def digest(self) -> str:
        return hashlib.sha256("\0".join([*self.train, "\0", *self.held_out]).encode()).hexdigest()


@dataclass(frozen=True)
class Data:
    corpus: Corpus
    tokenizer: Tokenizer
    train: torch.Tensor
    """[tokens] int32; every document is closed by the end-of-text token."""
    held_out: torch.Tensor


# --- data ---------------------------------------------------------------------------------------------------


def list_sources(root: Path) -> list[Path]:
    """Source files of the standard library in sorted order, without tests and tables."""

    def wanted(relative: Path) -> bool:
        return not EXCLUDED_FOLDERS & set(relative.parts) and relative.parts[0] not in EXCLUDED_PACKAGES

    return sorted(path for path in root.rglob("*.py") if wanted(path.relative_to(root)))


def read_source(path: Path) -> str:
    with tokenize.open(path) as file:  # honours a coding cookie
        return file.read()


def cut_functions(source: str) -> list[str]:
    """Module-level functions of a file, each to become a document of its own."""
    found = (ast.get_source_segment(source, node) for node in ast.parse(source).body if is_function(node))
    return [text + "\n" for text in found if text]


def is_function(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def load_corpus() -> Corpus:
    """Whole files, and their functions once more: these teach that a text may end where a function ends."""
    texts = [read_source(path) for path in list_sources(Path(sysconfig.get_paths()["stdlib"]))]
    held_out = texts[HOLD_OUT_EVERY // 2 :: HOLD_OUT_EVERY]
    files = [text for i, text in enumerate(texts) if i % HOLD_OUT_EVERY != HOLD_OUT_EVERY // 2]
    functions = [function for text in files for function in cut_functions(text)]
    return Corpus(files + functions, held_out, len(texts), sum(len(text.encode()) for text in texts))


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """Byte-level BPE without normaliser or added space: decoding gives back the very bytes encoded."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def obtain_tokenizer(settings: Settings, corpus: Corpus) -> Tokenizer:
    """The tokenizer given, else the one that this work folder already has, else a new one."""
    path = settings.work_dir / "tokenizer.json"
    if settings.tokenizer:
        shutil.copy(settings.tokenizer / "tokenizer.json", path)
    elif not path.exists():
        train_tokenizer(corpus.train).save(str(path))
    tokenizer = Tokenizer.from_file(str(path))
    if tokenizer.get_vocab_size() != VOCAB_SIZE:
        raise SystemExit(f"{path} has {tokenizer.get_vocab_size()} tokens; this script needs {VOCAB_SIZE}")
    return tokenizer


def encode_documents(tokenizer: Tokenizer, texts: list[str]) -> torch.Tensor:
    """One stream of the documents' token ids."""
    eos = tokenizer.token_to_id(EOS)
    ids = [np.array([*encoding.ids, eos], dtype=np.int32) for encoding in tokenizer.encode_batch(texts)]
    return torch.from_numpy(np.concatenate(ids))


def load_data(settings: Settings) -> Data:
    """The token streams are cached, and encoded anew when the corpus or the tokenizer differ."""
    corpus = load_corpus()
    tokenizer = obtain_tokenizer(settings, corpus)
    key = hashlib.sha256((corpus.digest + tokenizer.to_str()).encode()).hexdigest()[:16]
    path = settings.work_dir / f"tokens-{key}.safetensors"
    if not path.exists():
        order = np.random.default_rng(0).permutation(len(corpus.train))
        train = encode_documents(tokenizer, [corpus.train[i] for i in order])
        save_file({"train": train, "held_out": encode_documents(tokenizer, corpus.held_out)}, path)
    tensors = load_file(path)
    return Data(corpus, tokenizer, tensors["train"], tensors["held_out"])


def cut_rows(stream: torch.Tensor, starts: np.ndarray[Any, Any], length: int) -> torch.Tensor:
    """[rows, length + 1] token ids: inputs and, one further on, targets."""
    return torch.stack([stream[start : start + length + 1] for start in starts]).long()


def draw_batch(stream: torch.Tensor, settings: Settings, step: int) -> torch.Tensor:
    """The batch of a step, a function of seed and step alone so that a resumed run needs no sampler state.

    Most steps walk through a fresh permutation of the stream each epoch, shifted so that the cuts differ;
    every sixteenth takes few rows of full context, which teaches the positions beyond `sequence_length`.
    """
    if step % LONG_STEP_EVERY == LONG_STEP_EVERY - 1:
        rng = np.random.default_rng([settings.seed, 1, step])
        rows = max(1, settings.batch_tokens // MAX_CONTEXT)
        return cut_rows(stream, rng.integers(0, len(stream) - MAX_CONTEXT - 1, rows), MAX_CONTEXT)
    length = settings.sequence_length
    rows = settings.batch_tokens // length
    blocks = (len(stream) - 1) // length - 1
    epoch, position = divmod(step * rows, blocks - blocks % rows)
    rng = np.random.default_rng([settings.seed, 0, epoch])
    shift = rng.integers(0, length)
    return cut_rows(stream, shift + length * rng.permutation(blocks)[position : position + rows], length)


# --- model --------------------------------------------------------------------------------------------------


def build_model(settings: Settings) -> Any:
    config = Qwen3Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=settings.hidden_size,
        num_hidden_layers=settings.num_layers,
        num_attention_heads=settings.num_heads,
        num_key_value_heads=settings.num_kv_heads,
        head_dim=settings.head_dim,
        intermediate_size=settings.intermediate_size,
        max_position_embeddings=MAX_CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=SPECIAL_TOKENS.index(EOS),
        pad_token_id=SPECIAL_TOKENS.index(PAD),
    )
    torch.manual_seed(settings.seed)
    model = Qwen3ForCausalLM(config)
    for layer in model.model.layers:
        # Each block starts as the identity, which lets a short run use a high learning rate from the start.
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    return model


def count_parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def compute_loss(model: Any, rows: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy in nats per token; rows: [rows, length + 1]."""
    # Plain float32: without AMX, oneDNN's bfloat16 products are slower than MKL's float32 ones at this size.
    logits: torch.Tensor = model(input_ids=rows[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def measure_loss(model: Any, stream: torch.Tensor, length: int) -> float:
    """Mean loss over the whole stream in windows of `length`."""
    starts = np.arange(0, len(stream) - length - 1, length)
    rows_per_batch = max(1, 4096 // length)
    total = 0.0
    model.eval()
    with torch.inference_mode():
        for i in range(0, len(starts), rows_per_batch):
            rows = cut_rows(stream, starts[i : i + rows_per_batch], length)
            total += compute_loss(model, rows).item() * len(rows)
    model.train()
    return total / len(starts)


# --- optimisation -------------------------------------------------------------------------------------------


def orthogonalise(matrices: torch.Tensor) -> torch.Tensor:
    """Nearest semi-orthogonal matrices, roughly, by Newton-Schulz steps; matrices: [count, rows, columns]."""
    wide = matrices.mT if matrices.shape[1] > matrices.shape[2] else matrices
    x: torch.Tensor = wide / (wide.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if wide is not matrices else x


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised (Jordan 2024), scaled to the size of an AdamW update.

    torch.optim.Muon computes in bfloat16 and one matrix at a time, which costs a CPU three times as much.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": 0.95, "weight_decay": 0.1})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.Tensor]] = {}
            for parameter in group["params"]:
                by_shape.setdefault(parameter.shape, []).append(parameter)
            for parameters in by_shape.values():
                self.update_stack(parameters, group)

    def update_stack(self, parameters: list[torch.Tensor], group: dict[str, Any]) -> None:
        updates = torch.stack([self.blend_momentum(parameter, group["momentum"]) for parameter in parameters])
        scale = 0.2 * math.sqrt(max(parameters[0].shape))
        for parameter, update in zip(parameters, orthogonalise(updates), strict=True):
            parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"] * scale)

    def blend_momentum(self, parameter: torch.Tensor, momentum: float) -> torch.Tensor:
        """Nesterov's look-ahead of the running mean of gradients."""
        assert parameter.grad is not None
        mean = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
        mean.lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(mean, momentum)


def build_optimizers(model: Any, settings: Settings) -> Optimizers:
    """Muon for the matrices inside the blocks, AdamW for the embedding and the norms."""
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if not any(p is matrix for matrix in matrices)]
    return {
        "muon": Muon(matrices, lr=settings.muon_lr),
        "adam": torch.optim.AdamW(others, lr=settings.adam_lr, betas=(0.9, 0.95), weight_decay=0.01),
    }


def learning_rate_scale(share: float) -> float:
    """Short warm-up, then a straight line to zero; share: part of the time budget that is spent."""
    return max(0.0, min(share / WARMUP_SHARE, (1 - share) / (1 - WARMUP_SHARE), 1.0)) + 1e-3


def set_learning_rates(optimizers: Optimizers, settings: Settings, share: float) -> None:
    peaks = {"muon": settings.muon_lr, "adam": settings.adam_lr}
    for name, optimizer in optimizers.items():
        for group in optimizer.param_groups:
            group["lr"] = peaks[name] * learning_rate_scale(share)


def take_step(model: Any, optimizers: Optimizers, rows: torch.Tensor) -> float:
    loss = compute_loss(model, rows)
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers.values():
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.item()


# --- checkpoints --------------------------------------------------------------------------------------------


def run_key(settings: Settings) -> dict[str, Any]:
    """The settings that a checkpoint must share with the run that goes on from it."""
    free = {"out", "work_dir", "minutes", "threads", "tokenizer", "export_only"}
    return {name: value for name, value in asdict(settings).items() if name not in free}


def flatten_states(optimizers: Optimizers) -> dict[str, torch.Tensor]:
    return {
        f"{name}.{index}.{key}": tensor
        for name, optimizer in optimizers.items()
        for index, state in optimizer.state_dict()["state"].items()
        for key, tensor in state.items()
    }


def restore_states(optimizers: Optimizers, tensors: dict[str, torch.Tensor]) -> None:
    states: dict[str, dict[int, dict[str, torch.Tensor]]] = {name: {} for name in optimizers}
    for path, tensor in tensors.items():
        name, index, key = path.split(".")
        states[name].setdefault(int(index), {})[key] = tensor
    for name, optimizer in optimizers.items():
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": states[name], "param_groups": groups})


def list_checkpoints(work_dir: Path) -> list[Path]:
    return sorted(work_dir.glob("checkpoint-[0-9]*"), key=lambda path: int(path.name.partition("-")[2]))


def save_checkpoint(settings: Settings, model: Any, optimizers: Optimizers, progress: Progress) -> None:
    """Written aside and renamed, so that a checkpoint that can be seen is a whole one."""
    older = list_checkpoints(settings.work_dir)
    aside = settings.work_dir / "incomplete"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    save_file(dict(model.named_parameters()), aside / "model.safetensors")
    save_file(flatten_states(optimizers), aside / "optimizer.safetensors")
    state = {"settings": run_key(settings), "progress": asdict(progress)}
    (aside / "state.json").write_text(json.dumps(state, indent=2))
    target = settings.work_dir / f"checkpoint-{progress.step}"
    if target not in older:
        aside.rename(target)
    for path in older:
        if path != target:
            shutil.rmtree(path)


def load_checkpoint(settings: Settings, model: Any, optimizers: Optimizers) -> Progress:
    """Restores the newest checkpoint in place; a fresh Progress where there is none."""
    checkpoints = list_checkpoints(settings.work_dir)
    if not checkpoints:
        return Progress()
    state = json.loads((checkpoints[-1] / "state.json").read_text())
    if state["settings"] != run_key(settings):
        raise SystemExit(f"{checkpoints[-1]} was made with other settings: {state['settings']}")
    # The head is tied to the embedding and has no tensor of its own.
    model.load_state_dict(load_file(checkpoints[-1] / "model.safetensors"), strict=False)
    restore_states(optimizers, load_file(checkpoints[-1] / "optimizer.safetensors"))
    return Progress(**state["progress"])


# --- training loop ------------------------------------------------------------------------------------------


def format_progress(progress: Progress, settings: Settings) -> str:
    speed = progress.tokens / max(progress.elapsed_s, 1e-9)
    left = max(0.0, settings.seconds - progress.elapsed_s)
    return (
        f"step {progress.step:5d}  loss {progress.train_loss:.4f}  {progress.tokens / 1e6:.2f} M tokens  "
        f"{speed:.0f} tokens/s  ETA {left / 60:.1f} min"
    )


def every(seconds: float) -> Iterator[bool]:
    """True once in each period, False in between."""
    due = time.monotonic() + seconds
    while True:
        is_due = time.monotonic() >= due
        due = time.monotonic() + seconds if is_due else due
        yield is_due


def train(settings: Settings, model: Any, stream: torch.Tensor) -> Progress:
    optimizers = build_optimizers(model, settings)
    progress = load_checkpoint(settings, model, optimizers)
    log_due, checkpoint_due = every(LOG_SECONDS), every(CHECKPOINT_SECONDS)
    while progress.elapsed_s < settings.seconds:
        started = time.monotonic()
        set_learning_rates(optimizers, settings, progress.elapsed_s / settings.seconds)
        rows = draw_batch(stream, settings, progress.step)
        loss = take_step(model, optimizers, rows)
        progress.add_step(loss, rows[:, 1:].numel(), time.monotonic() - started)
        if next(log_due):
            print(format_progress(progress, settings), flush=True)
        if next(checkpoint_due):
            save_checkpoint(settings, model, optimizers, progress)
    save_checkpoint(settings, model, optimizers, progress)
    print(format_progress(progress, settings), flush=True)
    return progress


# --- export -------------------------------------------------------------------------------------------------


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": EOS,
        "pad_token": PAD,
        "additional_special_tokens": [token for token in SPECIAL_TOKENS if token not in (EOS, PAD)],
        "clean_up_tokenization_spaces": False,
        "model_max_length": MAX_CONTEXT,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def write_model(model: Any, folder: Path) -> None:
    model.to(torch.bfloat16).save_pretrained(folder)
    eos, pad = SPECIAL_TOKENS.index(EOS), SPECIAL_TOKENS.index(PAD)
    generation: Any = GenerationConfig.from_dict({"eos_token_id": eos, "pad_token_id": pad})
    generation.save_pretrained(folder)


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

A small language model of Python source, trained from scratch by `tools/train_demo_model.py` so that
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


def format_command(settings: Settings) -> str:
    """The options that shape the weights, whichever call exported them."""
    values = {**run_key(settings), "minutes": settings.minutes, "threads": settings.threads}
    options = [f"--{name.replace('_', '-')} {value}" for name, value in values.items()]
    return " ".join(["python tools/train_demo_model.py", *options])


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


def write_card(settings: Settings, folder: Path, values: dict[str, Any]) -> None:
    constants = {
        "context": MAX_CONTEXT,
        "vocab": VOCAB_SIZE,
        "hold_out": HOLD_OUT_EVERY,
        "long_every": LONG_STEP_EVERY,
    }
    samples = write_samples(folder, settings.seed)
    (folder / "README.md").write_text(CARD.format(**asdict(settings), **constants, **values, samples=samples))


def export(settings: Settings, model: Any, data: Data, progress: Progress) -> None:
    """Builds the folder aside and moves file by file, so that a reader of `out` never meets half a file."""
    settings.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=settings.work_dir) as name:
        folder = Path(name)
        write_tokenizer(data.tokenizer, folder)
        write_model(model, folder)
        card = describe_run(settings, data, progress) | describe_model(settings, model, data)
        write_card(settings, folder, card)
        for path in sorted(folder.iterdir()):
            partial = settings.out / f".{path.name}.partial"
            shutil.copyfile(path, partial)
            partial.replace(settings.out / path.name)
    size = sum(path.stat().st_size for path in settings.out.iterdir())
    print(f"wrote {settings.out}: {size / 1e6:.2f} MB", flush=True)


# --- command line -------------------------------------------------------------------------------------------


EXAMPLES = """\
examples:
  the model that is shipped:
    python tools/train_demo_model.py --minutes 40
  what a run in progress has learned so far:
    python tools/train_demo_model.py --export-only
  a draft model with the same tokenizer and a tenth of the parameters:
    python tools/train_demo_model.py --out signalbox/demo_model/draft --work-dir /tmp/draft \\
      --tokenizer signalbox/demo_model --minutes 14 --threads 1 \\
      --hidden-size 96 --num-layers 3 --num-heads 3 --num-kv-heads 1 --head-dim 32 --intermediate-size 320
"""


def parse_settings() -> Settings:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EXAMPLES,
    )
    add = parser.add_argument
    add_run_options(add)
    add_shape_options(add)
    add_learning_options(add)
    settings = Settings(**vars(parser.parse_args()))
    if settings.minutes <= 0:
        parser.error("--minutes must be positive")
    if not 0 < settings.sequence_length <= min(settings.batch_tokens, MAX_CONTEXT):
        parser.error(f"--sequence-length must not exceed --batch-tokens or {MAX_CONTEXT}")
    return settings


def add_run_options(add: Callable[..., Any]) -> None:
    out, scratch = Path("signalbox/demo_model"), Path(tempfile.gettempdir()) / "signalbox-demo-model"
    work_help = "folder for checkpoints and the token cache; one per model (%(default)s)"
    export_help = "write the newest checkpoint to --out and exit; its run may go on meanwhile"
    add("--out", type=Path, default=out, help="folder for the finished model (%(default)s)")
    add("--work-dir", type=Path, default=scratch, help=work_help)
    add("--minutes", type=float, default=40, help="training time on the clock (%(default)s)")
    threads_help = "CPU threads; on a shared machine set OMP_WAIT_POLICY=passive too (%(default)s)"
    add("--threads", type=int, default=os.cpu_count() or 1, help=threads_help)
    add("--seed", type=int, default=0, help="seed of weights, batches and samples (%(default)s)")
    add(
        "--tokenizer", type=Path, help="reuse the tokenizer of this folder, as a draft model must (train one)"
    )
    add("--export-only", action="store_true", help=export_help)


def add_learning_options(add: Callable[..., Any]) -> None:
    length_help = f"context of a step, but of every {LONG_STEP_EVERY}th: {MAX_CONTEXT} (%(default)s)"
    adam_help = "peak learning rate of the embedding and the norms (%(default)s)"
    add("--batch-tokens", type=int, default=2048, help="tokens per step (%(default)s)")
    add("--sequence-length", type=int, default=512, help=length_help)
    add("--muon-lr", type=float, default=1e-2, help="peak learning rate of the matrices (%(default)s)")
    add("--adam-lr", type=float, default=3e-3, help=adam_help)


def add_shape_options(add: Callable[..., Any]) -> None:
    add("--hidden-size", type=int, default=256, help="width of the residual stream (%(default)s)")
    add("--num-layers", type=int, default=8, help="blocks (%(default)s)")
    add("--num-heads", type=int, default=4, help="query heads (%(default)s)")
    add("--num-kv-heads", type=int, default=2, help="key/value heads; divides --num-heads (%(default)s)")
    add("--head-dim", type=int, default=64, help="width of a head (%(default)s)")
    add("--intermediate-size", type=int, default=768, help="width inside the MLP (%(default)s)")


def main() -> None:
    settings = parse_settings()
    settings.work_dir.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(settings.threads)
    data = load_data(settings)
    model = build_model(settings)
    print(f"{len(data.train):,} training tokens, {count_parameters(model):,} parameters", flush=True)
    if settings.export_only:
        progress = load_checkpoint(settings, model, build_optimizers(model, settings))
    else:
        progress = train(settings, model, data.train)
    export(settings, model, data, progress)


if __name__ == "__main__":
    main()
