"""Compares cached tokens of a hybrid to those of a model all of whose layers attend, request by request.

    python -m signalbox.benchmarks.scheduler.hits --states 64:4000 -- --blocks 100000 --requests 3000

The same requests run twice in simulated time; all that `signalbox bench plan` understands is understood behind `--`.
A hybrid goes on from a checkpoint at a boundary, so that it may find less: `within` is the share of requests that lose
less than a boundary, `branches` those that lose more, where a prompt parts from others at a place that nobody had
parted at before, and `first_branches` the share of these that are the first of their conversation.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass

import numpy as np

from signalbox.benchmarks.scheduler.plan import make_parser, make_plan
from signalbox.benchmarks.scheduler.turn import Turn

CHATS = "chat:1.5:30-300:50-250:turns=6:shared=500"
AGENTS = "agent:0.15:50-400:20-120:turns=12:shared=2000:forked=700:think=1"


@dataclass(frozen=True)
class Found:
    """What one request found."""

    num_prompt: int
    num_cached: int
    is_first: bool
    stream: str


def run(options: list[str]) -> dict[str, Found]:
    """What each request found, by name."""
    plan, found = make_plan(make_parser().parse_args(options)), dict[str, Found]()
    plan.load.steady = "hits"

    def note(turn: Turn) -> None:
        cached = max(turn.num_prompt - turn.prefilled, 0)
        found[turn.name] = Found(turn.num_prompt, cached, turn.number == 0, turn.stream)

    plan.on_end = note
    plan.run()
    plan.scheduler.check_integrity()
    return found


def compare(hybrid: dict[str, Found], whole: dict[str, Found], boundary: int) -> dict[str, float]:
    """What the hybrid found less."""
    names = [name for name in whole if name in hybrid]
    lost = np.array([whole[name].num_cached - hybrid[name].num_cached for name in names])
    prompts = np.array([whole[name].num_prompt for name in names])
    is_branch = lost >= boundary
    firsts = np.array([whole[name].is_first for name in names])
    share = {
        what: sum(found[name].num_cached for name in names) / prompts.sum()
        for what, found in (("hybrid", hybrid), ("all attend", whole))
    }
    return {
        "requests": len(names),
        **{f"found, {what}": round(float(value), 4) for what, value in share.items()},
        "lost_mean": round(float(lost.mean()), 1),
        "within": round(float((~is_branch).mean()), 4),
        "branches": int(is_branch.sum()),
        "first_branches": round(float(firsts[is_branch].mean()), 3) if is_branch.any() else 1.0,
        "lost_of_a_branch": round(float(lost[is_branch].mean()), 1) if is_branch.any() else 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--states", default="64:4000", metavar="BOUNDARY:CHECKPOINTS")
    parser.add_argument("--stream", action="append", help="of both (chats, and agents of one task)")
    parser.add_argument("more", nargs="*", help="options of signalbox bench plan, behind --")
    args = parser.parse_args()
    streams = [part for stream in args.stream or (CHATS, AGENTS) for part in ("--stream", stream)]
    whole = run([*streams, *args.more])
    hybrid = run([*streams, *args.more, "--states", args.states])
    boundary = int(args.states.split(":")[0])
    for name in sorted({each.stream for each in whole.values()}):
        of_stream = {key: each for key, each in whole.items() if each.stream == name}
        print(json.dumps({"stream": name} | compare(hybrid, of_stream, boundary)), flush=True)
    print(json.dumps({"stream": "all"} | compare(hybrid, whole, boundary)))


if __name__ == "__main__":
    main()
