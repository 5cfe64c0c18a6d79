"""A GGUF file as a directory that worker and frontend load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from worker_svc.gguf.llama import list_weights, make_config
from worker_svc.gguf.reader import GgufFile
from worker_svc.gguf.tokenizer import make_tokenizer, make_tokenizer_config, special_ids
from worker_svc.gguf.weights_file import write_weights


def convert(source: Path, target: Path, tell: Callable[[int, int], None]) -> None:
    """Writes config.json, generation_config.json, the tokenizer's two files and model.safetensors (bfloat16) into the
    directory `target`. `tell` gets the bytes of weights done and those of all.

    Raises GgufError for what cannot be converted, and OSError.
    """
    file = GgufFile(source)
    config = make_config(file)
    special = {f"{name}_token_id": number for name, number in special_ids(file).items() if name != "unk"}
    documents = {
        "config.json": config | special,
        "generation_config.json": special,
        "tokenizer.json": make_tokenizer(file),
        "tokenizer_config.json": make_tokenizer_config(file),
    }
    weights = list_weights(file, config)
    target.mkdir(parents=True, exist_ok=True)
    for name, document in documents.items():
        _write_json(target / name, document)
    write_weights(target / "model.safetensors", weights, tell)


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
