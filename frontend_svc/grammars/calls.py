"""What a grammar of calls is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from frontend_svc.grammars.lark import Lark

Functions = Mapping[str, Mapping[str, Any]]
"""Schemas of the arguments of functions, by name."""


@dataclass(frozen=True)
class CallGrammar:
    """One call, or one section of calls, in the language of a family."""

    opener: str
    """The tag that begins it; empty: none has to."""
    body: str
    """The expression behind that."""
    hidden: tuple[str, ...] = ()
    """Other tags that readers take for a beginning: text has none of them."""
    initial: str = ""
    """A regular expression for what text in front of all does not begin with, since it begins `untagged`."""
    untagged: str = ""
    """The expression of calls that begin the message and have no tag; empty: there are none."""
    beside_json: str = ""
    """As `untagged`, where the message may as well be JSON: no terminal begins with one of JSON's and goes on."""
    inner_token: str = ""
    """A token within the opener, where the vocabulary has it."""


Writer = Callable[[Lark, Functions], CallGrammar]
"""Raises UnboundError for what the language has no way to hold."""
