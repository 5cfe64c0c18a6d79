"""Fails by an exception."""

from benchmarks.gpu.context import Context


def run(context: Context) -> None:
    raise ValueError("no such kernel")
