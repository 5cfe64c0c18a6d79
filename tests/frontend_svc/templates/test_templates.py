"""Chat templates: what they may do, what they are told, and what a request may say of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from frontend_svc.templates.chat_template import ChatTemplate
from frontend_svc.templates.conversation import Conversation
from frontend_svc.templates.library import ChatTemplates
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.errors import InvalidRequestError, UnsupportedError
from tests.frontend_svc.guarded import Start
from tests.frontend_svc.helpers import STOP
from tests.frontend_svc.scripted_cluster import Cluster
from tests.frontend_svc.templates.prompting import CONTENTS, USER, prompts_of

CALLING: list[dict[str, Any]] = [
    *USER,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call12345", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
        ],
    },
]


async def prompt_of(source: str, *messages: dict[str, Any], **rest: Any) -> str:
    return await prompts_of(source).render(Conversation(messages or USER, **rest))


# ---- what a template may do


def test_a_refusal_of_the_template_is_the_clients_error() -> None:
    template = ChatTemplate("{{ raise_exception('the user speaks first') }}", {})
    with pytest.raises(InvalidRequestError, match="the user speaks first") as caught:
        template.render(USER)
    assert caught.value.field == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ dict.__init__.__globals__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ namespace(__class__=1) }}",
        "{% set n = namespace() %}{% set n._x = 1 %}",
        "{{ messages.append(1) }}",
        "{{ '{0.__class__}'.format(messages) }}{{ 1 / 0 }}",
    ],
)
def test_templates_run_in_a_sandbox(source: str) -> None:
    with pytest.raises(InvalidRequestError):
        ChatTemplate(source, {}).render([])


def test_a_template_that_no_sandbox_takes_is_named_as_what_is_wrong() -> None:
    """LM8: Kimi-K2's calls list.append, which transformers refuses, too."""
    with pytest.raises(InvalidRequestError, match=r"template is at fault.*append.*--chat-template"):
        ChatTemplate("{% set ids = [] %}{% set _ = ids.append(1) %}", {}).render([])


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ {'b': 1, 'a': 'ü'} | tojson(sort_keys=true, ensure_ascii=true) }}", '{"a": "\\u00fc", "b": 1}'),
        ("{{ [1, 2] | tojson(separators=(',', ':')) }}", "[1,2]"),
        ("{% generation %}{% set x = 1 %}said{% endgeneration %}{{ x }}", "said"),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "1"),
        ("{{ dict(a=1) | tojson }}{{ dict.fromkeys(['k'], 0) | tojson }}", '{"a": 1}{"k": 0}'),
        ("{% set n = namespace(self=1) %}{% set n.x = 2 %}{{ n.self + n.x }}", "3"),
        ("{{ bos_token }}{{ eos_token is defined }}", "<s>False"),
    ],
)
def test_what_templates_find(source: str, text: str) -> None:
    assert ChatTemplate(source, {"bos_token": "<s>"}).render(USER) == text


# ---- messages in the ways that templates want them


async def test_parts_go_to_templates_that_take_them_and_are_joined_by_line_ends_for_others() -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert await prompt_of(CONTENTS, parts) == "a\nb|"
    both = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}" + (
        "{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endif %}{% endfor %}"
    )
    assert await prompt_of(both, parts) == "<a><b>"
    assert await prompt_of(both) == "hi"
    only_parts = "{% for m in messages %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor %}"
    assert await prompt_of(only_parts) == "<hi>"


async def test_arguments_are_an_object_or_text_as_the_template_writes_them() -> None:
    start = "{% for m in messages %}{% for c in m.tool_calls or [] %}"
    end = "{% endfor %}{% endfor %}"
    writes_json = start + "{{ c.function.arguments | tojson }}" + end
    assert await prompt_of(writes_json, *CALLING) == '{"a": 1}'
    writes_text = start + "{{ 'call ' + c.function.arguments }}" + end
    assert await prompt_of(writes_text, *CALLING) == 'call {"a":1}'


@pytest.mark.parametrize(
    ("says", "text"),
    [
        ("{{ m.content is defined }}", "False"),
        ("{% if m.content is not none %}turn{% endif %}", ""),
        ("{{ 'said ' + m.content }}", "said "),
    ],
)
async def test_null_content_is_told_as_the_template_asks_for_it(says: str, text: str) -> None:
    """Left out as transformers has it, none where the template looks for that, empty where nothing else works."""
    source = "{% for m in messages %}{% if m.role == 'assistant' %}" + says
    source += "{% for c in m.tool_calls or [] %} {{ c.function.arguments | tojson }}{% endfor %}{% endif %}{% endfor %}"
    assert await prompt_of(source, *CALLING) == text + ' {"a": 1}'


async def test_no_call_is_hidden_by_empty_content() -> None:
    source = (
        "{% for m in messages %}{% if m.content is none %}{{ m.tool_calls[0].function.name }} "
        "{{ m.tool_calls[0].function.arguments | tojson }}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    assert await prompt_of(source, USER[0], CALLING[1] | {"content": ""}) == 'hif {"a": 1}'


async def test_reasoning_is_told_under_all_its_names() -> None:
    message = {"role": "assistant", "content": "x", "reasoning": "r"}
    source = "{% for m in messages %}{{ m.thinking }}{{ m.reasoning_content }}{{ m.reasoning }}{% endfor %}"
    assert await prompt_of(source, message) == "rrr"


async def test_a_developer_is_the_system_where_the_template_knows_no_developer() -> None:
    message = {"role": "developer", "content": "x"}
    source = "{% for m in messages %}{{ m.role }}{% endfor %}"
    assert await prompt_of(source, message) == "system"
    assert await prompt_of(source + "{# developer #}", message) == "developer"


@pytest.mark.parametrize(
    ("says", "end"),
    [
        ("{{ m.content }}<|end|>", "<|end|>"),
        ("{{ m.content }}\n<|end|>", "<|end|>"),
        ("{{ m.content }} [other]", ""),
        ("{{ m.reasoning }}<|end|>{{ m.content }}<|end|>", ""),
        ("{{ m.content }}<|end|>{% for c in m.tool_calls or [] %}{{ c | tojson }}<|end|>{% endfor %}", ""),
    ],
)
def test_the_end_of_a_turn(says: str, end: str) -> None:
    """A token that ends reasoning, too, or the text ahead of a call, ends no turn: calls would be lost."""
    templates = ChatTemplates({"default": "{% for m in messages %}" + says + "{% endfor %}"}, {})
    assert templates.choose(Conversation(USER)).find_turn_end(["<|end|>", "<|"]) == end


# ---- switches and documents


async def test_variables_reach_the_template() -> None:
    source = "{{ enable_thinking }} {{ reasoning_effort }} {{ messages | length }}"
    variables = {"enable_thinking": False, "reasoning_effort": "low"}
    assert await prompt_of(source, variables=variables) == "False low 1"


@pytest.mark.parametrize(
    ("source", "given", "text"),
    [
        ("{{ thinking }}", {"enable_thinking": True}, "True"),
        ("{{ enable_thinking }}", {"reasoning_effort": "none"}, "False"),
        ("{{ enable_thinking }}", {"reasoning_effort": "high"}, "True"),
        ("{{ enable_thinking }}", {"reasoning_effort": "high", "enable_thinking": False}, "False"),
        ("plain", {"enable_thinking": False}, "plain"),
        ("plain", {"reasoning_effort": "none", "anything": None}, "plain"),
    ],
)
async def test_the_switch_for_thinking_has_several_names(
    source: str, given: dict[str, Any], text: str
) -> None:
    assert await prompt_of(source, variables=given) == text


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"enable_thinking": True}, "chat_template_kwargs.enable_thinking"),
        ({"enable_thinkin": False}, "chat_template_kwargs.enable_thinkin"),
        ({"messages": []}, "chat_template_kwargs.messages"),
    ],
)
async def test_what_the_template_does_not_read_is_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        await prompt_of("plain", variables=given)
    assert caught.value.field == field


async def test_documents_need_a_place() -> None:
    documents = ({"title": "t", "text": "x"},)
    assert await prompt_of("{{ documents[0].text }}", documents=documents) == "x"
    with pytest.raises(UnsupportedError, match="no place for documents"):
        await prompt_of("plain", documents=documents)


# ---- over HTTP


async def test_fields_of_a_chat_reach_the_template(
    cluster: Cluster, tokenizer: Tokenizer, tmp_path: Path, start: Start
) -> None:
    file = tmp_path / "template"
    file.write_text(
        "{{ messages | tojson }} {{ enable_thinking }} {{ reasoning_effort }} {{ extra }} "
        "{{ documents | length }} {{ add_generation_prompt }}"
    )
    prompts: list[str] = []
    fox = tokenizer.fast.encode(" fox").ids

    def answer(payload: Any) -> list[int]:
        prompts.append(tokenizer.decode(list(memoryview(payload.token_ids).cast("i"))))
        return fox

    cluster.serve(answer, STOP)
    frontend = await start(chat_template=file, key_file=None)
    body: dict[str, Any] = {
        "messages": USER,
        "chat_template_kwargs": {"extra": "more"},
        "enable_thinking": False,
        "reasoning_effort": "low",
        "documents": [{"text": "a"}],
        "add_generation_prompt": False,
    }
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}") as http:
        answered = await http.post("/v1/chat/completions", json=body)
        assert answered.status_code == 200, answered.text
        assert prompts == [f"{json.dumps(USER)} False low more 1 False"]
        both = body | {"add_generation_prompt": True, "continue_final_message": True}
        refused = await http.post("/v1/chat/completions", json=both)
        assert refused.json()["error"]["param"] == "continue_final_message"


async def test_histories_of_other_servers_are_taken(http: httpx.AsyncClient, cluster: Cluster) -> None:
    """Nulls, labels and older forms change nothing, or say the same in other words."""
    call = {"id": "c1", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{}"}}
    history: list[dict[str, Any]] = [
        {"role": "developer", "content": "be brief", "id": "m1"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, "b"],
        },
        {
            "role": "assistant",
            "content": "x",
            "annotations": [],
            "audio": None,
            "reasoning": None,
            "reasoning_content": None,
            "function_call": None,
            "tool_calls": [],
            "provider_specific_fields": None,
            "refusal": None,
        },
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "prefix": False},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "I think"},
        {"role": "tool", "content": "3", "tool_call_id": "c1", "cache_control": None},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "4"},
        {"role": "user", "content": "hi", "tool_calls": None},
    ]
    answer = await http.post("/tokenize", json={"messages": history})
    assert answer.status_code == 200, answer.text
    text = (await http.post("/detokenize", json={"tokens": answer.json()["tokens"]})).json()["prompt"]
    call_text = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    assert text == (
        "<|system|>be brief\n<|user|>a\nb\n<|assistant|>x\n<|assistant|>no\n"
        f"<|assistant|>{call_text}\n<|tool|>3\n<|assistant|>{call_text}\n<|tool|>4\n<|user|>hi\n<|assistant|>"
    )
