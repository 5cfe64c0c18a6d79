"""Write a model directory with random weights, for tests and for timing without a download.

    python -m tools.make_random_model qwen3-60m /tmp/model --dtype bfloat16 --tokenizer some/model

The outputs mean nothing, but vary with the whole context: weights are scaled by the width of their input, so
that attention is neither flat nor drowned by the residual stream, as with the initialisation for training.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    PreTrainedConfig,
    Qwen3Config,
)

from tools.hybrid_families import HYBRID_PRESETS
from tools.hybrid_sizes import HYBRID_SIZES
from tools.tiny_families import EOS_TOKEN_ID, TINY, TINY_PRESETS

PRESETS: dict[str, tuple[type[PreTrainedConfig], dict[str, Any]]] = (
    TINY_PRESETS
    | HYBRID_PRESETS
    | HYBRID_SIZES
    | {
        "speck-qwen3": (
            Qwen3Config,
            TINY
            | {
                "hidden_size": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
                "intermediate_size": 32,
                "tie_word_embeddings": True,
            },
        ),
        "qwen3-60m": (
            Qwen3Config,
            TINY
            | {
                "vocab_size": 32000,
                "hidden_size": 512,
                "num_hidden_layers": 8,
                "num_attention_heads": 8,
                "num_key_value_heads": 4,
                "head_dim": 64,
                "intermediate_size": 1536,
                "max_position_embeddings": 4096,
                "tie_word_embeddings": True,
            },
        ),
        "qwen3-0.6b": (
            Qwen3Config,
            TINY
            | {
                "vocab_size": 151936,
                "hidden_size": 1024,
                "num_hidden_layers": 28,
                "num_attention_heads": 16,
                "num_key_value_heads": 8,
                "head_dim": 128,
                "intermediate_size": 3072,
                "max_position_embeddings": 40960,
                "tie_word_embeddings": True,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
            },
        ),
        "qwen3-8b": (
            Qwen3Config,
            TINY
            | {
                "vocab_size": 151936,
                "hidden_size": 4096,
                "num_hidden_layers": 36,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "head_dim": 128,
                "intermediate_size": 12288,
                "max_position_embeddings": 40960,
                "tie_word_embeddings": False,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
            },
        ),
    }
)
LARGE = {"qwen3-8b"}
"""Drawn in the dtype that is written: in float32 they would not fit."""
LARGEST_FILE = "4GB"
GAINS = {"q_proj": 2.0, "k_proj": 2.0, "q_norm": 1.5, "k_norm": 1.5, "o_proj": 3.0}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def make_model(
    preset: str,
    out_dir: Path,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Path:
    """Writes config.json, generation_config.json and model.safetensors, or several of 4 GB with their index, to
    `out_dir`, and returns that. device: where weights are drawn; each kind draws others."""
    config_class, settings = PRESETS[preset]
    config = config_class(**settings)
    auto_model: Any = AutoModelForCausalLM
    with torch.device(device):
        model = auto_model.from_config(config, dtype=dtype if preset in LARGE else torch.float32)
    fill_weights(model, torch.Generator(device).manual_seed(seed))
    model.generation_config.eos_token_id = EOS_TOKEN_ID
    model.to(dtype).save_pretrained(out_dir, max_shard_size=LARGEST_FILE)
    return out_dir


@torch.no_grad()
def fill_weights(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Matrices get variance 1 / inputs and norms about 1, both times the gain of the module; biases are small."""
    for name, parameter in sorted(model.named_parameters()):
        gain = GAINS.get(name.split(".")[-2], 1.0)
        if parameter.dim() == 2 and not name.endswith("bias"):
            parameter.normal_(std=gain * parameter.shape[1] ** -0.5, generator=generator)
        elif parameter.dim() == 3 and not name.endswith("bias"):  # experts
            parameter.normal_(std=gain * parameter.shape[2] ** -0.5, generator=generator)
        elif name.endswith(("bias", "sinks")):
            parameter.normal_(std=0.3, generator=generator)
        elif name.endswith("A_log"):  # of a layer alone it is memory that nobody has written
            parameter.uniform_(0.8 * gain, 1.2 * gain, generator=generator)
        elif float(parameter.abs().max()) == 0:  # a norm whose weight is added to 1
            parameter.uniform_(-0.2, 0.2, generator=generator)
        else:
            parameter.uniform_(0.8 * gain, 1.2 * gain, generator=generator)
    for name, buffer in sorted(model.named_buffers()):
        if name.endswith("e_score_correction_bias"):
            buffer.normal_(std=0.1, generator=generator)
        elif name.endswith("layer_scalar"):
            buffer.uniform_(0.6, 0.9, generator=generator)


def copy_tokenizer(source: Path, out_dir: Path) -> None:
    """Copies a tokenizer. ValueError if it has tokens that the model lacks."""
    vocab_size = json.loads((out_dir / "config.json").read_text())["vocab_size"]
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    added = [token["id"] for token in tokenizer.get("added_tokens", ())]
    largest = max([*tokenizer["model"]["vocab"].values(), *added])
    if largest >= vocab_size:
        raise ValueError(f"{source} has token {largest}, but the model has {vocab_size} tokens")
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, out_dir / name)


def write_word_tokenizer(out_dir: Path) -> None:
    """A byte-level tokenizer with a word for each of the model's tokens, so that any output has a text to be made."""
    vocab_size = json.loads((out_dir / "config.json").read_text())["vocab_size"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [f"\u0120w{number}" for number in range(vocab_size - len(alphabet))]  # U+0120 stands for a space
    tokenizer = Tokenizer(models.BPE({word: index for index, word in enumerate(alphabet + words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(out_dir / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (out_dir / "tokenizer_config.json").write_text(json.dumps(settings) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("preset", choices=PRESETS)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    tokenizer = parser.add_mutually_exclusive_group()
    tokenizer.add_argument("--tokenizer", type=Path, help="directory whose tokenizer is copied")
    tokenizer.add_argument(
        "--word-tokenizer", action="store_true", help="write one with a word for each token"
    )
    options = parser.parse_args()
    make_model(options.preset, options.out_dir, options.seed, getattr(torch, options.dtype))
    if options.tokenizer is not None:
        copy_tokenizer(options.tokenizer, options.out_dir)
    if options.word_tokenizer:
        write_word_tokenizer(options.out_dir)


if __name__ == "__main__":
    main()
