"""Write a model directory with random weights that classifies, scores pairs or embeds, for tests and for timing.

    python -m tools.random_heads minilm-l6-cross-encoder /tmp/model

The tokenizer has a word for each token, and special tokens as the family has them around texts and pairs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from tools.make_random_model import fill_weights
from tools.tiny_families import TINY

CLS, SEP, PAD = 2, 3, 1
TINY_ENCODER = {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 256,
    "pad_token_id": PAD,
    "bos_token_id": CLS,
    "eos_token_id": SEP,
    "cls_token_id": CLS,
    "sep_token_id": SEP,
}
MINILM = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
    "pad_token_id": PAD,
    "num_labels": 1,
}


class HeadPreset(NamedTuple):
    """How a directory is made."""

    auto: str
    """Class of transformers that makes the model."""
    config: str
    settings: dict[str, Any]
    separators: int = 1
    """Separators between the parts of a pair; 0: the tokenizer puts no special tokens anywhere."""
    types: bool = False
    """The second part of a pair has token type 1."""


SEQUENCE, TOKENS, BASE = "ForSequenceClassification", "ForTokenClassification", ""
LABELS = {"id2label": {0: "calm", 1: "glad", 2: "sad"}, "label2id": {"calm": 0, "glad": 1, "sad": 2}}
DISTIL = {
    "vocab_size": 512,
    "dim": 64,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 128,
    "max_position_embeddings": 256,
    "pad_token_id": PAD,
}
PRESETS: dict[str, HeadPreset] = {
    "bert-cross-encoder": HeadPreset(SEQUENCE, "Bert", TINY_ENCODER | {"num_labels": 1}, types=True),
    "bert-labels": HeadPreset(SEQUENCE, "Bert", TINY_ENCODER | LABELS, types=True),
    "bert-tokens": HeadPreset(TOKENS, "Bert", TINY_ENCODER | LABELS, types=True),
    "bert-embed": HeadPreset(BASE, "Bert", TINY_ENCODER, types=True),
    "roberta-labels": HeadPreset(SEQUENCE, "Roberta", TINY_ENCODER | LABELS, 2),
    "xlm-roberta-cross-encoder": HeadPreset(SEQUENCE, "XLMRoberta", TINY_ENCODER | {"num_labels": 1}, 2),
    "xlm-roberta-embed": HeadPreset(BASE, "XLMRoberta", TINY_ENCODER, 2),
    "camembert-tokens": HeadPreset(TOKENS, "Camembert", TINY_ENCODER | LABELS, 2),
    "distilbert-labels": HeadPreset(SEQUENCE, "DistilBert", DISTIL | LABELS),
    "electra-labels": HeadPreset(
        SEQUENCE, "Electra", TINY_ENCODER | LABELS | {"embedding_size": 32}, types=True
    ),
    "modernbert-cross-encoder": HeadPreset(
        SEQUENCE, "ModernBert", TINY_ENCODER | {"num_labels": 1, "local_attention": 32}
    ),
    "modernbert-mean": HeadPreset(
        SEQUENCE, "ModernBert", TINY_ENCODER | LABELS | {"local_attention": 32, "classifier_pooling": "mean"}
    ),
    "modernbert-tokens": HeadPreset(TOKENS, "ModernBert", TINY_ENCODER | LABELS | {"local_attention": 32}),
    "modernbert-embed": HeadPreset(BASE, "ModernBert", TINY_ENCODER | {"local_attention": 32}),
    "qwen3-score": HeadPreset(SEQUENCE, "Qwen3", TINY | {"num_labels": 1, "pad_token_id": PAD}, 0),
    "qwen3-labels": HeadPreset(SEQUENCE, "Qwen3", TINY | LABELS | {"pad_token_id": PAD}, 0),
    "qwen3-tokens": HeadPreset(TOKENS, "Qwen3", TINY | LABELS, 0),
    "qwen2-labels": HeadPreset(SEQUENCE, "Qwen2", TINY | LABELS | {"pad_token_id": PAD}, 0),
    "llama-labels": HeadPreset(SEQUENCE, "Llama", TINY | LABELS | {"pad_token_id": PAD}, 0),
    "mistral-score": HeadPreset(SEQUENCE, "Mistral", TINY | {"num_labels": 1, "pad_token_id": PAD}, 0),
    "gemma2-labels": HeadPreset(
        SEQUENCE, "Gemma2", TINY | LABELS | {"query_pre_attn_scalar": 16, "pad_token_id": PAD}, 0
    ),
    "qwen3-words": HeadPreset("ForCausalLM", "Qwen3", TINY | {"tie_word_embeddings": True}, 0),
    "minilm-l6-cross-encoder": HeadPreset(SEQUENCE, "Bert", MINILM, types=True),
}


def make_head_model(name: str, out_dir: Path, seed: int = 0, dtype: torch.dtype = torch.float32) -> Path:
    """Writes config, weights and tokenizer to `out_dir`, and returns that."""
    preset = PRESETS[name]
    config_class = getattr(transformers, f"{preset.config}Config")
    model_class = getattr(transformers, f"{preset.config}{preset.auto or 'Model'}")
    model = model_class(config_class(**preset.settings))
    fill_weights(model, torch.Generator().manual_seed(seed))
    model.to(dtype).save_pretrained(out_dir)
    write_tokenizer(preset, out_dir)
    return out_dir


def write_tokenizer(preset: HeadPreset, out_dir: Path) -> None:
    """A tokenizer with the words w0, w1, ... behind special tokens; what it does not know is <unk>."""
    vocab_size = json.loads((out_dir / "config.json").read_text())["vocab_size"]
    special = ["<unk>", "<pad>", "<s>", "</s>", "no", "yes"]
    words = special + [f"w{number}" for number in range(vocab_size - len(special))]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(special[:4])
    if preset.separators:
        second = 1 if preset.types else 0
        between = " ".join(["</s>:0"] * preset.separators)
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s>:0 $A:0 </s>:0",
            pair=f"<s>:0 $A:0 {between} $B:{second} </s>:{second}",
            special_tokens=[("<s>", CLS), ("</s>", SEP)],
        )
    tokenizer.save(str(out_dir / "tokenizer.json"))
    inputs = ["input_ids", *(["token_type_ids"] if preset.types else []), "attention_mask"]
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": inputs,
        "pad_token": "<pad>",
        "clean_up_tokenization_spaces": False,
    }
    (out_dir / "tokenizer_config.json").write_text(json.dumps(settings) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("preset", choices=PRESETS)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    make_head_model(options.preset, options.out_dir, options.seed)


if __name__ == "__main__":
    main()
