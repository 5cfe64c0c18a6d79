"""What can go wrong in a model runner."""

from __future__ import annotations


class ModelLoadError(Exception):
    """The model cannot be served as asked. The message is one sentence that names the file or the setting."""


def one_line(error: BaseException) -> str:
    """The kind of an error and the first line of what it says, for a message of ours."""
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def check_at_least_one(**settings: int | None) -> None:
    """ModelLoadError if a setting that counts something was set to less than 1."""
    for name, value in settings.items():
        if value is not None and value < 1:
            raise ModelLoadError(f"{name} is {value}, but at least 1 is needed.")
