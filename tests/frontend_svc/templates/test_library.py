"""Where chat templates come from, and which one is taken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from frontend_svc.config import Limits
from frontend_svc.templates.conversation import Conversation
from frontend_svc.templates.library import ChatTemplates, load_chat_templates, load_given_template
from frontend_svc.templates.prompts import ChatPrompts
from signalbox.errors import StartupError, UnsupportedError
from tests.frontend_svc.guarded import Start
from tests.frontend_svc.scripted_cluster import Cluster
from tests.frontend_svc.templates.prompting import USER


def load(directory: Path, config: dict[str, Any] | None = None) -> dict[str, str]:
    templates = load_chat_templates(directory, config or {})
    return {} if templates is None else templates.sources


def test_templates_of_a_directory(tmp_path: Path) -> None:
    assert load(tmp_path) == {}
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "of a processor"}))
    assert load(tmp_path) == {"default": "of a processor"}
    assert load(tmp_path, {"chat_template": "inline"}) == {"default": "inline"}
    named = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    assert load(tmp_path, {"chat_template": named}) == {"default": "a", "tool_use": "b"}
    (tmp_path / "chat_template.jinja").write_text("file")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("for documents")
    assert load(tmp_path, {"chat_template": named}) == {"default": "file", "rag": "for documents"}


def test_special_tokens_of_an_older_model(tmp_path: Path) -> None:
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"bos_token": {"content": "<s>"}}))
    templates = load_chat_templates(tmp_path, {"chat_template": "{{ bos_token }}"})
    assert templates is not None
    assert templates.choose(Conversation(USER)).template.render(USER) == "<s>"


async def test_named_templates_are_chosen_by_what_is_asked() -> None:
    sources = {
        "default": "plain",
        "tool_use": "{{ tools | length }} tools",
        "rag": "{{ documents | length }} texts",
    }
    prompts = ChatPrompts(ChatTemplates(sources, {}), Limits())
    tool = {"type": "function", "function": {"name": "f"}}
    assert await prompts.render(Conversation(USER)) == "plain"
    assert await prompts.render(Conversation(USER, [tool])) == "1 tools"
    assert await prompts.render(Conversation(USER, documents=[{"text": "x"}])) == "1 texts"
    del sources["default"]
    with pytest.raises(UnsupportedError, match="chat templates for rag, tool_use only"):
        await ChatPrompts(ChatTemplates(sources, {}), Limits()).render(Conversation(USER))


def test_a_given_template_stands_for_the_models_own(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("own")
    file = tmp_path / "given"
    file.write_text("given")
    assert load_given_template(file, tmp_path, {}).sources == {"default": "given"}
    file.write_text("{% if %}")
    with pytest.raises(StartupError, match="chat template is broken"):
        load_given_template(file, tmp_path, {})
    with pytest.raises(StartupError, match="cannot read the chat template"):
        load_given_template(tmp_path / "nowhere", tmp_path, {})


async def test_a_broken_template_is_told_to_those_who_chat_and_keeps_nobody_else(
    model_directory: Path, tmp_path: Path, cluster: Cluster, start: Start
) -> None:
    shutil.copytree(model_directory, tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_text("{% if %}")
    frontend = await start(model=tmp_path / "model", key_file=None)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}") as http:
        chat = await http.post("/v1/chat/completions", json={"messages": USER})
        assert (chat.status_code, "template is broken" in chat.json()["error"]["message"]) == (400, True)
        assert (await http.post("/tokenize", json={"prompt": "x"})).status_code == 200
