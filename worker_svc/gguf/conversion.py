"""A GGUF file as a directory that worker and frontend load: its metadata as their files, and a link to its weights."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from worker_svc.gguf.families import make_config
from worker_svc.gguf.parts import open_parts
from worker_svc.gguf.tokenizer import make_tokenizer, make_tokenizer_config, special_ids, stop_ids

WEIGHTS = "model.gguf"


def convert(source: Path, target: Path) -> None:
    """Writes config.json, generation_config.json and the tokenizer's two files into the directory `target`, and links
    to the GGUF file or its parts: as other names of the same files, or on another disk as symbolic links.

    Raises GgufError for what is not served, and OSError.
    """
    files = open_parts(source)
    first = files[0]
    special: dict[str, Any] = {
        f"{name}_token_id": number for name, number in special_ids(first).items() if name != "unk"
    }
    stops = stop_ids(first)
    if stops:
        special["eos_token_id"] = stops[0] if len(stops) == 1 else stops
    documents = {
        "config.json": make_config(files) | special,
        "generation_config.json": special,
        "tokenizer.json": make_tokenizer(first),
        "tokenizer_config.json": make_tokenizer_config(first),
    }
    target.mkdir(parents=True, exist_ok=True)
    for name, document in documents.items():
        _write_json(target / name, document)
    for number, file in enumerate(files, 1):
        numbered = f"model-{number:05}-of-{len(files):05}.gguf"
        _link(file.path, target / (WEIGHTS if len(files) == 1 else numbered))


def _link(source: Path, target: Path) -> None:
    with suppress(FileNotFoundError):
        target.unlink()
    original = source.resolve()
    try:
        os.link(original, target)
    except OSError:  # another disk, or one without links
        target.symlink_to(original)


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
