"""The text of figures, and its places in documents: between `<!-- figures: NAME -->` and `<!-- end of figures -->`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

from tools.figures.calls import ROOT
from tools.figures.record import Line, Record, read

COLUMNS = 100
DOCUMENTS = ("README.md", "docs/performance.md")
PLACE = re.compile(r"(?s)(<!-- figures: ([\w-]+) -->\n).*?(\n?<!-- end of figures -->)")
GOALS = {0: {64: 60, 256: 80, 1024: 150, 4096: 400}, 4: {64: 80, 256: 120, 1024: 260, 4096: 900}}
"""Microseconds of a step by draft tokens and running requests."""


def render(document: str) -> str:
    """The text of a document with all its figures as docs/data has them."""

    def fill(place: re.Match[str]) -> str:
        return place[1] + TEXTS[place[2]]() + "\n" + place[3].lstrip("\n")

    return PLACE.sub(fill, Path(ROOT / document).read_text())


def summary() -> str:
    """The first figures of the README."""
    steps, vllm = _steps("scheduler", 0)[1024], _steps("vllm", 0)[1024]
    streams, (fault,) = read("streams")
    tenants, floods = read("tenants")
    flood = {line["policy"]: line["ttft_p99_ms_beside_the_flood"] for line in floods}
    wrong = [f"{fault[kind] or 'none'} {kind}" for kind in ("lost", "doubled", "changed")]
    return "\n".join(
        (
            _item(
                f"**The scheduler is cheap.** A step at 1,024 running requests takes it {_us(steps)} µs and "
                f"{steps['scheduler_output_bytes']:.0f} bytes; vLLM 0.32 takes {_us(vllm)} µs and "
                f"{vllm['scheduler_output_bytes']:,.0f} bytes (on an older CPU of the same size)."
            ),
            _item(
                f"**Streams survive.** Workers were killed under {fault['streams']:,} streams: {', '.join(wrong)}; "
                f"99 of 100 paused for {fault['gap_p99_s']:.2f} s at most. "
                "Running streams go on without a scheduler, too."
            ),
            _item(
                "**Tenants are kept apart.** Beside a tenant with 200 requests a second, another one's first tokens "
                f"take {flood['fair']:.0f} ms at the 99th percentile. First come, first served: "
                f"{flood['fcfs'] / 1000:.0f} s (simulated time)."
            ),
            "",
            _text(_all_told({"step": read("scheduler")[0], "streams": streams, "tenants": tenants})),
            "",
            _chart(),
        )
    )


def _chart() -> str:
    """The picture, with its text."""
    ours, theirs = (
        f"{min(values):,.0f} to {max(values):,.0f}"
        for values in (
            [line["total_us_p50"] for line in _steps(name, 0).values()] for name in ("scheduler", "vllm")
        )
    )
    return f"![microseconds per step: signalbox {ours}, vLLM 0.32 {theirs}](docs/figures/scheduler.svg)"


def steps() -> str:
    """The first table of docs/performance.md: steady steps without drafts."""
    head = (
        "| running | total | goal | schedule | encode | parse | update "
        "| vLLM 0.32 sync / async (Zen 4) | step, bytes | report, bytes |"
    )
    vllm, ahead = _steps("vllm", 0), _steps("vllm", 0, "asynchronous")
    rows = []
    for running, line in _steps("scheduler", 0).items():
        other = vllm[running]
        parts = [f"{line[f'{part}_us_p50']:.0f}" for part in ("schedule", "encode", "parse", "update")]
        sizes = [_bytes(line, other, f"{message}_output_bytes") for message in ("scheduler", "model_runner")]
        goal = GOALS[0][running]
        cells = [
            f"{running:,}",
            _us(line),
            str(goal),
            *parts,
            f"{_us(other)} / {_us(ahead[running])}",
            *sizes,
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join((head, "|---" * 10 + "|", *rows, "", _text(_told(read("scheduler")[0]))))


def drafts() -> str:
    """The table of steps with four draft tokens."""
    head = "| running | total | goal | vLLM async + 4 drafts (Zen 4) | step, bytes | report, bytes |"
    vllm = _steps("vllm", 4, "asynchronous")
    rows = []
    for running, line in _steps("scheduler", 4).items():
        sizes = [f"{line[f'{message}_output_bytes']:,.0f}" for message in ("scheduler", "model_runner")]
        rows.append(
            f"| {' | '.join([f'{running:,}', _us(line), str(GOALS[4][running]), _us(vllm[running]), *sizes])} |"
        )
    return "\n".join((head, "|---" * 6 + "|", *rows))


def turns() -> str:
    """The table of ratios to fixed commits."""
    record, lines = read("steady")
    head = "| against | running | pairs | total, ratio | lowest and highest pair | schedule | update |"
    rows = [
        f"| {line['against']} | {line['running']:,} | {line['pairs']} | {line['total_ratio']:.2f} | "
        f"{line['total_ratio_min']:.2f}, {line['total_ratio_max']:.2f} | "
        f"{line['schedule_ratio']:.2f} | {line['update_ratio']:.2f} |"
        for line in lines
    ]
    return "\n".join((head, "|---" * 7 + "|", *rows, "", _text(_told(record))))


TEXTS: dict[str, Callable[[], str]] = {
    "summary": summary,
    "steps": steps,
    "drafts": drafts,
    "turns": turns,
}


def _steps(name: str, speculative: int, mode: str = "") -> dict[int, Line]:
    """Lines of steps by running requests."""
    lines = [line for line in read(name)[1] if line["speculative"] == speculative]
    return {line["running"]: line for line in lines if line.get("mode", "") == mode}


def _us(line: Line) -> str:
    return f"{line['total_us_p50']:,.0f}"


def _bytes(ours: Line, theirs: Line, key: str) -> str:
    other = f" (vLLM {theirs[key]:,.0f})" if key in theirs else ""
    return f"{ours[key]:,.0f}{other}"


def _origin(record: Record) -> str:
    return f"at {record.commit}, {record.date}, {record.machine}"


def _all_told(records: Mapping[str, Record]) -> str:
    """Where and when figures were measured: once, if it is the same for all."""
    origins = {name: _origin(record) for name, record in records.items()}
    if len(set(origins.values())) == 1:
        return f"Measured {next(iter(origins.values()))}."
    return f"Measured: {'; '.join(f'{name} {origin}' for name, origin in origins.items())}."


def _told(record: Record) -> str:
    digest = f"; digest of the code that ran: {record.digest}" if record.digest else ""
    return f"Measured {_origin(record)}{digest}."


def _item(text: str) -> str:
    return textwrap.fill(text, COLUMNS, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def _text(text: str) -> str:
    return textwrap.fill(text, COLUMNS, break_on_hyphens=False)
