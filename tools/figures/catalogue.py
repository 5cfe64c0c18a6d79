"""The figures: how each is measured, and where it is shown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One file of docs/data."""

    name: str
    """Its name without .jsonl."""
    commands: tuple[str, ...]
    """Arguments of Python; the commands print the lines of the file. `{out}` is a file to which lines are added."""
    samples: tuple[str, ...]
    """Short commands that run the same functions: these are profiled, the others are not."""
    is_in_readme: bool = False
    is_quick: bool = True
    """Measured unless figures are named."""


STEP = "-m signalbox bench scheduler"
SAMPLE = "-m signalbox.benchmarks.scheduler.step --running 64 --steps 50"
SAMPLES = (SAMPLE, f"{SAMPLE} --speculative 4")
FAULT = "-m tests.chaos --runner sim --drafts off --only 'worker SIGKILL'"
FLOOD = (
    "-c 'from signalbox.benchmarks.qos.bench import run_flood; run_flood(duration_s=8)'",
    '-c \'from signalbox.benchmarks.qos.bench import run_fairness; run_fairness("alike", "fcfs", 3)\'',
)
FIGURES = {
    figure.name: figure
    for figure in (
        Figure(
            "scheduler",
            (f"{STEP} --running 64 256 1024 4096", f"{STEP} --running 64 256 1024 4096 --speculative 4"),
            SAMPLES,
            is_in_readme=True,
        ),
        Figure("steady", ("-m tools.steady_step --pairs 11",), SAMPLES[:1]),
        Figure("tenants", ("-m signalbox.benchmarks.qos.bench --only flood",), FLOOD, is_in_readme=True),
        Figure(
            "streams",
            (f"{FAULT} --times 2 --out {{out}}",),
            (f"{FAULT} --times 1 --streams 10 --out {{out}}",),
            is_in_readme=True,
        ),
        Figure("qos", ("-m signalbox.benchmarks.qos.bench",), FLOOD, is_quick=False),
    )
}
"""By name. Other files of docs/data were measured with programs or on machines that are not here any more."""
