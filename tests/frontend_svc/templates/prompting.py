"""Small templates and what the frontend makes of them."""

from __future__ import annotations

from typing import Any

from frontend_svc.config import Limits
from frontend_svc.templates.library import ChatTemplates
from frontend_svc.templates.prompts import ChatPrompts

CONTENTS = "{% for m in messages %}{{ m.content }}|{% endfor %}"
USER = [{"role": "user", "content": "hi"}]


def prompts_of(source: str, **limits: Any) -> ChatPrompts:
    return ChatPrompts(ChatTemplates({"default": source}, {}), Limits(**limits))
