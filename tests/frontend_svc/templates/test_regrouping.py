"""Conversations of agents, in which anybody speaks at any time, before templates that take less."""

from __future__ import annotations

from typing import Any

import pytest

from frontend_svc.templates.chat_template import ChatTemplate
from frontend_svc.templates.conversation import Plain
from frontend_svc.templates.fitting import fit_messages
from frontend_svc.templates.regrouping import regroup
from frontend_svc.templates.traits import find_traits

LINE = "{{ m['role'] }}:{{ m['content'] or '' }}"
LINE += "{% for c in m['tool_calls'] or [] %}[{{ c['id'] }}]{% endfor %}{{ '\n' }}"
LOOP = "{% for m in messages %}" + LINE + "{% endfor %}{% if tools %}{% endif %}"
FIRST_ALONE = (
    "{% for m in messages %}{% if m['role'] == 'system' and not loop.first %}"
    "{{ raise_exception('only in front') }}{% endif %}" + LINE + "{% endfor %}{{ tools or '' }}"
)
DROPS = (
    "{% for m in messages %}{% if m['role'] != 'system' or loop.first %}" + LINE + "{% endif %}{% endfor %}"
)
NO_SYSTEM = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('none') }}{% endif %}" + LINE
)
NO_SYSTEM += "{% endfor %}"
ALTERNATING = (
    "{% set ns = namespace(before='') %}{% for m in messages %}"
    "{% if m['role'] == ns.before and ns.before != 'tool' or m['role'] == 'user' and ns.before == 'tool' %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% set ns.before = m['role'] %}"
    "{% for c in m['tool_calls'] or [] %}{% if c['id'] | length != 9 %}{{ raise_exception('ids') }}{% endif %}"
    "{% endfor %}" + LINE + "{% endfor %}{% if tools %}{% endif %}"
)


def say(role: str, content: Any, **more: Any) -> Plain:
    return {"role": role, "content": content, **more}


def call(name: str) -> Plain:
    return {"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}


TALK = [
    say("system", "A"),
    say("user", "b"),
    say("system", "C"),
    say("user", [{"type": "text", "text": "d"}, {"type": "text", "text": "e"}]),
    say("assistant", "f"),
    say("assistant", None, tool_calls=[call("call_1")], reasoning="g"),
    say("tool", "h", tool_call_id="call_1"),
    say("user", "i"),
    say("developer", "J"),
    say("assistant", "k"),
]


def told(source: str, messages: list[Plain]) -> str:
    template = ChatTemplate(source, {})
    traits = find_traits(template)
    return template.render(fit_messages(regroup(messages, traits), traits))


@pytest.mark.parametrize("source", [FIRST_ALONE, DROPS], ids=["refuses", "drops"])
def test_what_the_system_says_late_is_said_by_the_user(source: str) -> None:
    """LM12: not refused, and not lost."""
    assert told(source, TALK) == (
        "system:A\nuser:b\nuser:C\nuser:d\ne\nassistant:f\nassistant:[call_1]\ntool:h\nuser:i\nuser:J\nassistant:k\n"
    )


def test_a_system_that_is_not_heard_at_all() -> None:
    """LM12."""
    assert told(NO_SYSTEM, TALK[:2]) == "user:A\nuser:b\n"


def test_a_template_that_hears_it_is_told_as_it_was_said() -> None:
    """LM12."""
    assert told(LOOP, TALK[:5]) == "system:A\nuser:b\nsystem:C\nuser:d\ne\nassistant:f\n"


def test_turns_that_have_to_alternate() -> None:
    """LM12: neighbours are joined, words behind a result are part of it, and ids are made to fit."""
    messages = [*TALK[:2], say("user", "c"), *TALK[3:8], TALK[-1]]
    given = regroup(messages, find_traits(ChatTemplate(ALTERNATING, {})))
    assert [(m["role"], m["content"]) for m in given] == [
        ("system", "A"),
        ("user", "b\n\nc\n\nd\n\ne"),
        ("assistant", "f"),
        ("tool", "h\n\ni"),
        ("assistant", "k"),
    ]
    calling, result = given[2], given[3]
    assert calling["reasoning"] == "g"
    (made,) = calling["tool_calls"]
    assert made["id"] == result["tool_call_id"] != "call_1" and len(made["id"]) == 9
    assert "assistant:f[" in told(ALTERNATING, messages)


def test_ids_that_fit_stay() -> None:
    """LM12."""
    messages = [TALK[1], say("assistant", None, tool_calls=[call("abcdef123")])]
    assert "[abcdef123]" in told(ALTERNATING, messages)
