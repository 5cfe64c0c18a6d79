"""Model directories: what is read, and one sentence for what is missing."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from frontend_svc.text.chat_template import ChatTemplate
from frontend_svc.text.tokenizer import Tokenizer, load_tokenizer
from signalbox.errors import InvalidRequestError, StartupError


def test_fingerprint_and_special_tokens(tokenizer: Tokenizer, model_directory: Path) -> None:
    source = (model_directory / "tokenizer.json").read_bytes()
    assert tokenizer.fingerprint == hashlib.sha256(source).hexdigest()
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("<eos>", 0)


def test_pieces_are_the_bytes_of_tokens(tokenizer: Tokenizer) -> None:
    ids = tokenizer.fast.encode("größe 🚂<tool call>").ids
    assert b"".join(map(tokenizer.piece, ids)).decode() == "größe 🚂<tool call>"


def test_chat_template(tokenizer: Tokenizer) -> None:
    assert tokenizer.chat is not None
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert tokenizer.chat.render(messages) == "<bos><|system|>be brief\n<|user|>hi\n<|assistant|>"
    with pytest.raises(InvalidRequestError, match="the user speaks first") as caught:
        tokenizer.chat.render([{"role": "assistant", "content": "hi"}])
    assert caught.value.field == "messages"


def test_templates_run_in_a_sandbox() -> None:
    template = ChatTemplate("{{ messages.__class__.__mro__[1].__subclasses__() }}", {})
    with pytest.raises(InvalidRequestError, match="unsafe"):
        template.render([])


def test_a_template_in_a_file_of_its_own(model_directory: Path, tmp_path: Path) -> None:
    shutil.copy(model_directory / "tokenizer.json", tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages | tojson }}")
    chat = load_tokenizer(tmp_path).chat
    assert chat is not None
    assert json.loads(chat.render([{"role": "user", "content": "<ü>"}])) == [
        {"role": "user", "content": "<ü>"}
    ]


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
        ({"tokenizer.json": None, "chat_template.jinja": "{% if %}"}, "chat template is broken"),
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
