"""The Markdown file of a run: versions and card first, then a chapter for each stage with its tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.gpu.results import Results, Values
from benchmarks.gpu.stage_list import MACHINE, Stage


class Column(NamedTuple):
    """A column of a table."""

    title: str
    key: str
    """Name in the lines."""
    is_share: bool = False
    """Written in percent."""


class Table(NamedTuple):
    """A table of the lines of a kind."""

    kind: str
    columns: tuple[Column, ...]
    title: str = ""


KERNELS = (
    Table(
        "profile",
        (
            Column("steps", "steps"),
            Column("kernels a step", "kernels"),
            Column("first to last, ms", "span_ms"),
            Column("busy, ms", "busy_ms"),
            Column("idle", "idle", True),
        ),
        "The device's time",
    ),
    Table(
        "kernel",
        (
            Column("steps", "steps"),
            Column("kernel", "kernel"),
            Column("µs a step", "us"),
            Column("times a step", "count"),
            Column("of the busy time", "share", True),
        ),
        "The longest kernels",
    ),
)
TABLES: dict[str, tuple[Table, ...]] = {
    "right": (
        Table("kernels", (Column("Triton launches", "launches"), Column("problem", "problem"))),
        Table(
            "case",
            (
                Column("model", "preset"),
                Column("graphs", "graphs"),
                Column("served", "case"),
                Column("tokens", "tokens"),
                Column("equal", "equal"),
                Column("near ties", "near_ties"),
                Column("wrong", "wrong"),
                Column("largest gap, std", "largest_gap"),
                Column("note", "note"),
                Column("problem", "problem"),
            ),
            "Greedy tokens in float32 against transformers' own forward",
        ),
    ),
    "memory": (
        Table(
            "loaded",
            (
                Column("loaded in, s", "load_s"),
                Column("graphs and warm-up, s", "warm_s"),
                Column("type", "dtype"),
                Column("batch", "batch"),
                Column("graphs", "graphs"),
                Column("fused", "fused"),
                Column("blocks", "num_blocks"),
                Column("max_model_len", "max_model_len"),
                Column("slots", "num_slots"),
                Column("read a step, GB", "read_gb"),
                Column("KV of a token, bytes", "kv_bytes_per_token"),
            ),
            "The model",
        ),
        Table(
            "memory",
            (
                Column("card, GB", "whole_gb"),
                Column("allocated", "allocated_gb"),
                Column("reserved", "reserved_gb"),
                Column("free", "free_gb"),
                Column("asked for", "asked", True),
                Column("filled", "filled", True),
            ),
            "Memory behind the largest step",
        ),
    ),
    "decode": (
        Table(
            "decode",
            (
                Column("context", "context"),
                Column("rows", "rows"),
                Column("step, ms", "step_ms"),
                Column("floor, ms", "floor_ms"),
                Column("ratio", "ratio"),
                Column("in turn, ms", "in_turn_ms"),
                Column("of it on the device", "device_ms"),
                Column("host's launch, ms", "launch_ms"),
                Column("the same, in turn", "launch_in_turn_ms"),
                Column("tokens/s", "tok_s"),
                Column("note", "note"),
            ),
            "Steps one ahead; the floor is the bytes that are read over the measured bandwidth",
        ),
        *KERNELS,
        Table(
            "company",
            (
                Column("computed", "way"),
                Column("sequences", "sequences"),
                Column("with equal tokens", "equal"),
            ),
            "Whether tokens depend on a row's company",
        ),
    ),
    "mixed": (
        Table(
            "mixed",
            (
                Column("rows", "rows"),
                Column("chunk", "chunk"),
                Column("steps", "steps"),
                Column("step, ms", "step_ms"),
                Column("host's launch, ms", "launch_ms"),
            ),
            "Rows that decode beside a chunk of a prompt",
        ),
        *KERNELS,
    ),
    "sampling": (
        Table(
            "sampling",
            (
                Column("rows", "rows"),
                Column("of them", "of_them"),
                Column("sampled with", "sampling"),
                Column("steps", "steps"),
                Column("step, ms", "step_ms"),
                Column("host's launch, ms", "launch_ms"),
            ),
            "Decode steps; rows that are not counted are greedy",
        ),
    ),
    "prompts": (
        Table(
            "prompts",
            (
                Column("prompts", "prompts"),
                Column("tokens each", "length"),
                Column("ms", "ms"),
                Column("the first time", "first_ms"),
                Column("tokens/s", "tok_s"),
                Column("TFLOP/s", "tflop_s"),
                Column("of the peak", "of_peak", True),
                Column("note", "note"),
            ),
            "Steps that compute prompts alone",
        ),
        *KERNELS,
    ),
    "ring": (
        Table(
            "ready",
            (
                Column("model", "model"),
                Column("ready after, s", "ready_s"),
                Column("of it graphs and warm-up", "warm_s"),
            ),
        ),
        Table(
            "ring",
            (
                Column("streams", "streams"),
                Column("output tok/s", "output_tok_s"),
                Column("TTFT p50, ms", "ttft_ms_p50"),
                Column("p99", "ttft_ms_p99"),
                Column("ITL p50, ms", "itl_ms_p50"),
                Column("p99", "itl_ms_p99"),
                Column("TPOT p50, ms", "tpot_ms_p50"),
                Column("worker's step, ms", "step_ms"),
                Column("of it in the model", "step_execute_ms"),
                Column("worker idle", "worker_idle_share", True),
            ),
            "Over HTTP",
        ),
    ),
}
HEAD = (
    Column("card", "card"),
    Column("memory, GB", "memory_gb"),
    Column("driver", "driver"),
    Column("CUDA", "cuda"),
    Column("torch", "torch"),
    Column("triton", "triton"),
    Column("transformers", "transformers"),
    Column("Python", "python"),
    Column("cores", "cores"),
    Column("copies, TB/s", "copy_tb_s"),
    Column("reads, TB/s", "read_tb_s"),
    Column("commit", "commit"),
)


def markdown(results: Results, stages: Sequence[Stage], command: str) -> str:
    """All that is known so far."""
    parts = ["# A GPU, measured", _head(results), f"`{command}`, raw lines in `{results.raw.name}`."]
    return "\n\n".join([*parts, *(_chapter(results, stage) for stage in stages)]) + "\n"


def _head(results: Results) -> str:
    lines = results.lines.get(MACHINE.name, [])
    if not lines:
        outcome = results.outcomes.get(MACHINE.name)
        return "The machine is not known" + (f": {'; '.join(outcome.failures)}" if outcome else " yet.")
    return "\n".join(f"- {column.title}: {_shown(lines[0], column)}" for column in HEAD)


def _chapter(results: Results, stage: Stage) -> str:
    outcome = results.outcomes.get(stage.name)
    if outcome is None:
        verdict = "Not ended."
    elif outcome.failures:
        verdict = f"**Failed** after {outcome.seconds:g} s:\n\n" + "\n".join(
            f"- {_escaped(sentence)}" for sentence in outcome.failures
        )
    else:
        verdict = (
            f"Right, in {outcome.seconds:g} s."
            if stage.name == "right"
            else f"Ran, in {outcome.seconds:g} s."
        )
    tables = [_table(results.of_kind(stage.name, table.kind), table) for table in TABLES[stage.name]]
    return "\n\n".join([f"## {stage.name}", verdict, *(text for text in tables if text)])


def _table(lines: Sequence[Values], table: Table) -> str:
    """Without columns that no line has a value for; empty without lines."""
    columns = [column for column in table.columns if any(_has(line, column) for line in lines)]
    if not columns:
        return ""
    rows = [[_shown(line, column) for column in columns] for line in lines]
    titles = [column.title for column in columns]
    text = ["| " + " | ".join(cells) + " |" for cells in (titles, ["---"] * len(columns), *rows)]
    return "\n".join([*([table.title + ":", ""] if table.title else []), *text])


def _has(line: Values, column: Column) -> bool:
    return line.get(column.key) not in (None, "")


def _shown(line: Values, column: Column) -> str:
    value = line.get(column.key)
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if column.is_share:
        return f"{value:.1%}"
    if isinstance(value, int | float) and abs(value) >= 1000:
        return f"{value:,.0f}"
    return _escaped(str(value))


def _escaped(text: str) -> str:
    """On one line, without what ends a cell."""
    return " ".join(text.split()).replace("|", "\\|")
