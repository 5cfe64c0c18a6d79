"""A model directory without weights that knows tools and reasons: Qwen3's vocabulary and template."""

from __future__ import annotations

import json
from pathlib import Path

from tests.downloads import chat_templates, vocabulary

TEMPLATE = "Qwen-Qwen3-0.6B"
TURN_END = "<|im_end|>"


def make_directory(folder: Path) -> Path:
    """What a frontend reads of such a model. Skips the test that asks without a network."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_bytes(vocabulary("qwen3"))
    (folder / "chat_template.jinja").write_text(chat_templates()[TEMPLATE])
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": TURN_END}))
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "vocab_size": 151_936}))
    return folder
