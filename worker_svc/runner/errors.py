"""What can go wrong in a model runner."""

from __future__ import annotations


class ModelLoadError(Exception):
    """The model cannot be served as asked. The message is one sentence that names the file or the setting."""
