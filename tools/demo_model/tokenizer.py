"""The tokenizer: trained on the corpus, or taken over."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from tools.demo_model.corpus import Corpus
from tools.demo_model.settings import MAX_CONTEXT, Settings

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
