"""Model directories: what is read, and one sentence for what is missing."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from frontend_svc.text.tokenizer import Tokenizer, load_tokenizer
from signalbox.errors import StartupError


def test_fingerprint_and_special_tokens(tokenizer: Tokenizer, model_directory: Path) -> None:
    source = (model_directory / "tokenizer.json").read_bytes()
    assert tokenizer.fingerprint == hashlib.sha256(source).hexdigest()
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("<eos>", 0)


def test_pieces_are_the_bytes_of_tokens(tokenizer: Tokenizer) -> None:
    ids = tokenizer.fast.encode("größe 🚂<tool call>").ids
    assert b"".join(map(tokenizer.piece, ids)).decode() == "größe 🚂<tool call>"


def test_without_a_template(model_directory: Path, tmp_path: Path) -> None:
    shutil.copy(model_directory / "tokenizer.json", tmp_path)
    assert load_tokenizer(tmp_path).chat is None


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "cannot read .*tokenizer.json"),
        ({"tokenizer.json": "{"}, "cannot load .*tokenizer.json"),
        ({"tokenizer.json": None, "tokenizer_config.json": "{"}, "tokenizer_config.json is not JSON"),
        (
            {"tokenizer.json": None, "tokenizer_config.json": "[]"},
            "tokenizer_config.json is not a JSON object",
        ),
    ],
)
def test_broken_directories(
    model_directory: Path, tmp_path: Path, files: dict[str, str | None], sentence: str
) -> None:
    for name, content in files.items():
        if content is None:
            shutil.copy(model_directory / name, tmp_path)
        else:
            (tmp_path / name).write_text(content)
    with pytest.raises(StartupError, match=sentence):
        load_tokenizer(tmp_path)


def test_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="does not exist"):
        load_tokenizer(tmp_path / "nowhere")
