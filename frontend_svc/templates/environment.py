"""The sandbox in which chat templates run: what they find there is what transformers 5 gives them, no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

Now = Callable[[], datetime]
"""Local time of the wall."""


def make_environment(now: Now = datetime.now) -> jinja2.Environment:
    """A sandbox for templates that nobody has read. `now` is what they are told of the time."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(
        raise_exception=_raise_exception,
        strftime_now=lambda form: now().strftime(form),
        # jinja's own are Python classes, through whose attributes templates have got out of sandboxes.
        dict=_MakeDict(),
        namespace=_GuardedNamespace,
    )
    return environment


class GenerationTag(Extension):
    """`{% generation %}` marks what the model wrote, for training; here its inside is rendered and that is all."""

    tags = {"generation"}  # noqa: RUF012 - jinja's own type

    def parse(self, parser: Parser) -> nodes.Node:
        """A block with a scope of its own, as in transformers: what is set inside is not seen behind it."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller: Macro) -> str:
        inside: str = caller()
        return inside


class _MakeDict:
    """Stands for `dict`; an object without anything that leads to the class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """As of `dict`."""
        return dict.fromkeys(*args)


class _GuardedNamespace(Namespace):
    """`namespace` without names that begin with an underscore, which lead to Python's inside."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # a template may well name an attribute `self`
        self, *pairs = args
        values = dict(*pairs, **kwargs)
        for name in values:
            _check_name(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(
            f"a namespace cannot have {name!r}: it begins with an underscore"
        )


def _raise_exception(message: str) -> NoReturn:
    """Templates call it, e.g. when roles do not alternate."""
    raise jinja2.TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike jinja's own filter this one does not escape for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
