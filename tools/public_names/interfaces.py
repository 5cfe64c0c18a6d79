"""Names of the interfaces that are called: settings, commands, messages, errors and HTTP paths."""

from __future__ import annotations

import argparse
import ast
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from starlette.routing import Route

from frontend_svc.api.http.app import HttpApi
from frontend_svc.api.page.board_stream import BoardStream
from frontend_svc.api.page.page import WebPage
from frontend_svc.config import FrontendSettings
from frontend_svc.services import make_services
from scheduler_svc.config import SchedulerSettings
from signalbox.cli.commands import bench
from signalbox.cli.main import make_parsers
from signalbox.errors import STATUS, code_of
from signalbox.runtime.config import Settings, flag_of
from signalbox.runtime.removed import REMOVED
from tools.public_names.sources import modules_with
from worker_svc.config import WorkerSettings
from worker_svc.relay.config import RelaySettings

SERVICES: dict[str, type[Settings]] = {
    "frontend-svc": FrontendSettings,
    "scheduler-svc": SchedulerSettings,
    "worker-svc": WorkerSettings,
    "worker_svc.relay": RelaySettings,
}
"""The settings of each service, by the command or module that starts it."""
VARIABLE = "SIGNALBOX_"
"""Prefix of our environment variables."""


def settings() -> Iterator[str]:
    """Each setting with its variable and its flag."""
    for service, declared in SERVICES.items():
        prefix = declared.model_config.get("env_prefix", "")
        for name in declared.model_fields:
            yield f"setting {prefix}{name.upper()} {service} {flag_of(name)}"


def variables() -> Iterator[str]:
    """Environment variables that are no setting of one service, nor removed: whole string constants of the product."""
    others = {line.split()[1] for line in settings()} | REMOVED.keys()
    for tree in modules_with(VARIABLE):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = node.value
                is_name = name.startswith(VARIABLE) and not name.endswith("_") and name.isidentifier()
                if is_name and name.isupper() and name not in others:
                    yield f"variable {name}"


def commands() -> Iterator[str]:
    """Subcommands and options of `signalbox`. Of the benches that run in a process of their own, the words alone."""
    root, by_name = make_parsers((), is_complete=True)
    yield from _options(root)
    for parser in by_name.values():
        yield from _options(parser)
    for name in bench.MODULES:
        yield f"command signalbox bench {name}"
    for name, module in bench.COMMANDS.items():
        parser = argparse.ArgumentParser(prog=f"signalbox bench {name}", allow_abbrev=False)
        import_module(module).add_arguments(parser)
        yield from _options(parser)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"command {parser.prog}"
    for action in parser._actions:
        yield from (f"option {parser.prog} {option}" for option in action.option_strings)
        if (
            not action.option_strings
            and action.choices
            and not isinstance(action, argparse._SubParsersAction)
        ):
            yield from (f"command {parser.prog} {word}" for word in action.choices)


def errors() -> Iterator[str]:
    """Words by which errors are known on the wire and in bodies."""
    for error, status in STATUS.items():
        yield f"error {code_of(error(''))}"
        yield f"error-type {status.openai_type}"
        if status.openai_code:
            yield f"error-code {status.openai_code}"


def paths() -> Iterator[str]:
    """Methods and paths of the routes of an application with files and page."""
    with tempfile.TemporaryDirectory() as directory:
        services = make_services(FrontendSettings(files_dir=Path(directory)))
        page = WebPage(BoardStream(lambda: ""))
        api = HttpApi(services, is_ready=lambda: True, page=page)
        for route in api.app.routes:
            assert isinstance(route, Route)
            for method in route.methods or ():
                yield f"path {method} {route.path}"
        services.stop()
