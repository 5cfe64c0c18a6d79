"""Writes a line, and how many stages its process has had."""

from benchmarks.gpu.context import Context


def run(context: Context) -> None:
    context.kept["stages"] = context.kept.get("stages", 0) + 1
    context.line("said", stages=context.kept["stages"])
