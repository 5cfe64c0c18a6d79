"""What can be wrong with a GGUF file."""

from __future__ import annotations


class GgufError(Exception):
    """The file cannot be made into a model directory. The message is one sentence that names the file or what is in
    it."""
