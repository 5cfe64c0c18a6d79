"""How every service reads its settings: flags over environment variables over defaults.

A service declares one frozen `Settings` subclass, a docstring under each field. `--num-blocks` and
`SIGNALBOX_WORKER_NUM_BLOCKS` are the same setting; an unknown or removed flag or variable is an error, never ignored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, TypeVar, cast

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, CliApp, SettingsConfigDict

from signalbox.errors import StartupError
from signalbox.runtime.logs import LogFormat
from signalbox.runtime.removed import refuse_settings

LOG_FORMAT = "SIGNALBOX_LOG_FORMAT"
S = TypeVar("S", bound="Settings")


class Settings(BaseSettings):
    """Base of the services' settings."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        use_attribute_docstrings=True,
        nested_model_default_partial_update=True,
    )

    log_format: Annotated[LogFormat, Field(validate_default=True)] = cast(
        LogFormat, os.environ.get(LOG_FORMAT) or "text"
    )
    """How to log, on stderr: lines for people, or one JSON object per line. SIGNALBOX_LOG_FORMAT sets it for every
    service."""

    @property
    def ids(self) -> Mapping[str, str]:
        """What names this process in each JSON object that it logs; empty ones are left out."""
        return {}

    def take_effect(self) -> None:
        """Does for the whole process what the settings ask, before anything listens, dials or forks. Raises
        StartupError."""


def load(settings: type[S], arguments: list[str]) -> S:
    """Reads `settings` from `arguments` and the environment.

    Raises StartupError with a sentence that names the setting, or says what replaces a removed one; `--help` and
    unknown flags exit as argparse does.
    """
    refuse_settings(settings.model_config.get("env_prefix", ""), arguments, os.environ)
    _refuse_unknown_variables(settings)
    try:
        return CliApp.run(settings, cli_args=arguments)
    except ValidationError as error:
        raise StartupError("; ".join(_sentence(settings, item) for item in error.errors())) from None


def flag_of(name: str) -> str:
    """The flag of a field: `num_blocks` is `--num-blocks`."""
    return "--" + name.replace("_", "-")


def _sentence(settings: type[Settings], item: object) -> str:
    assert isinstance(item, dict)
    name = str(item["loc"][0]) if item["loc"] else ""
    message = str(item["msg"]).removeprefix("Value error, ")
    if not name:
        return message
    prefix = settings.model_config.get("env_prefix", "")
    return f"{flag_of(name)} (or {prefix}{name.upper()}): {message}, got {item['input']!r}"


def _refuse_unknown_variables(settings: type[Settings]) -> None:
    """A misspelt variable must not vanish: pydantic reads only the ones it knows."""
    prefix = settings.model_config.get("env_prefix", "")
    known = {prefix + name.upper() for name in settings.model_fields}
    unknown = sorted(name for name in os.environ if prefix and name.startswith(prefix) and name not in known)
    if unknown:
        raise StartupError(f"unknown environment variable {unknown[0]}; known are {', '.join(sorted(known))}")
