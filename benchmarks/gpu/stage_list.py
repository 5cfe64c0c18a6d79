"""The stages in their order: where each is, and its part of the time. Imports none of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One part of a run, with a limit on its time."""

    name: str
    module: str
    """Has `run(context)`."""
    share: float
    """Part of the time, in seconds of some seven minutes. What a stage leaves of its time the next ones may take."""
    group: str
    """Stages of a group that follow each other share a process, and what it has loaded."""


MACHINE = Stage("machine", "benchmarks.gpu.machine", 40, "right")
"""Runs ahead of every run's first stage."""
STAGES = (
    Stage("right", "benchmarks.gpu.right.stage", 120, "right"),
    Stage("memory", "benchmarks.gpu.speed.memory", 100, "speed"),
    Stage("decode", "benchmarks.gpu.speed.decode", 45, "speed"),
    Stage("mixed", "benchmarks.gpu.speed.mixed", 18, "speed"),
    Stage("sampling", "benchmarks.gpu.speed.sampling", 28, "speed"),
    Stage("prompts", "benchmarks.gpu.speed.prompts", 17, "speed"),
    Stage("ring", "benchmarks.gpu.ring", 80, "ring"),
)
NAMES = tuple(stage.name for stage in STAGES)


def stage_of(name: str) -> Stage:
    """The stage of that name."""
    return next(stage for stage in (MACHINE, *STAGES) if stage.name == name)


def ends_of(stages: Sequence[Stage], seconds: float) -> dict[str, float]:
    """Seconds from the start of the run at which each stage has to have ended, by name."""
    whole, ends, so_far = sum(stage.share for stage in stages), {}, 0.0
    for stage in stages:
        so_far += stage.share
        ends[stage.name] = seconds * so_far / whole
    return ends
