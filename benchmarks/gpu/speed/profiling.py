"""Which kernels a step runs, and for how much of its time the device has nothing to do."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.context import Context

NO_KERNELS = ("ProfilerStep", "Context Sync")
"""Beginnings of the names of events that are none."""
MOST_KERNELS = 12
"""Lines of kernels, those that take longest."""


def profile_steps(context: Context, name: str, num_steps: int, work: Callable[[], object]) -> None:
    """Writes a line for the steps that `work` makes, and one for each of the longest kernels. Nothing where the
    profiler sees no kernels."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        work()
        torch.cuda.synchronize()
    kernels = kernels_of(found)
    if not kernels:
        return
    totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    busy, end = 0.0, kernels[0][1]
    for kernel, start, duration in kernels:
        totals[short(kernel)][0] += duration
        totals[short(kernel)][1] += 1
        busy += max(0.0, start + duration - max(end, start))
        end = max(end, start + duration)
    span = max(end - kernels[0][1], 1e-9)
    context.line(
        "profile",
        steps=name,
        kernels=round(len(kernels) / num_steps, 1),
        span_ms=round(span / num_steps / 1e3, 3),
        busy_ms=round(busy / num_steps / 1e3, 3),
        idle=round(1 - busy / span, 3),
    )
    for kernel, (total, count) in sorted(totals.items(), key=lambda item: -item[1][0])[:MOST_KERNELS]:
        context.line(
            "kernel",
            steps=name,
            kernel=kernel,
            us=round(total / num_steps, 1),
            count=round(count / num_steps, 1),
            share=round(total / busy, 3),
        )


def kernels_of(found: Any) -> list[tuple[str, float, float]]:
    """Name, start and duration in microseconds of what ran on the device, by start."""
    events = [
        (event.name(), event.start_ns() / 1e3, event.duration_ns() / 1e3)
        for event in found.profiler.kineto_results.events()
        if "CUDA" in str(event.device_type())
    ]
    return sorted((e for e in events if not e[0].startswith(NO_KERNELS)), key=lambda event: event[1])


def short(name: str) -> str:
    """A kernel's name without its templates."""
    plain = re.sub(r"^void ", "", name).replace("at::native::", "").replace("(anonymous namespace)::", "")
    return re.split(r"[<(]", plain)[0][:60] or plain[:60]
