"""Compares workers with roles to plain ones, in simulated time: no roles, `always`, `conditional`.

    python -m signalbox.benchmarks.scheduler.apart --load 1:0.1 2:0.3 3:0.6 --seeds 3 --base-ms 20 --token-ms 0.3

A load is CHATS:PROMPTS, short chats and long prompts that begin per second, on two workers. Each line has the median
over the seeds, and for `conditional` what it has beside the better of the other two. All that `signalbox bench plan`
understands is understood here, behind `--`. Step times of a real worker: signalbox.benchmarks.runner.step_times.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from statistics import median

from signalbox.benchmarks.scheduler.latencies import Latencies
from signalbox.benchmarks.scheduler.plan import make_parser, make_plan

WAYS: Mapping[str, tuple[str, ...]] = {
    "no roles": ("--workers", "2"),
    "always": ("--roles", "prefill,decode", "--prefill-hand-off", "always"),
    "conditional": ("--roles", "prefill,decode"),
}
SHOWN = ("slo_share", "itl_ms_p99", "chat_ttft_ms_p99", "long_ttft_ms_p99")


def figures_of(options: list[str]) -> dict[str, float]:
    """What one plan comes to."""
    args = make_parser().parse_args(options)
    plan, latencies = make_plan(args), Latencies(tuple(args.slo))
    plan.on_end = latencies.take
    plan.run()
    plan.scheduler.check_integrity()
    moved = plan.scheduler.handoffs.counts.num_committed
    return {name: latencies.summarize()[name] for name in SHOWN} | {"handed_over": moved}


def compare(load: str, args: argparse.Namespace, more: list[str]) -> list[dict[str, float | str]]:
    """A line for each way."""
    chats, prompts = load.split(":")
    common = [
        *("--stream", f"chat:{chats}:{args.chat}", "--stream", f"long:{prompts}:{args.long}"),
        *("--base-ms", str(args.base_ms), "--token-ms", str(args.token_ms)),
        *("--context-ms", str(args.context_ms), "--max-num-batched-tokens", str(args.chunk)),
        *(
            "--slo",
            *map(str, args.slo),
            "--requests",
            str(args.requests),
            "--blocks",
            str(args.blocks),
            *more,
        ),
    ]
    lines = dict[str, dict[str, float | str]]()
    for way, options in WAYS.items():
        runs = [figures_of([*common, *options, "--seed", str(seed)]) for seed in range(args.seeds)]
        lines[way] = {
            "load": load,
            "way": way,
            **{name: round(median(run[name] for run in runs), 4) for name in runs[0]},
        }
    ours, others = lines["conditional"], [lines["no roles"], lines["always"]]
    ours["good_beside_best"] = round(_of(ours, "slo_share") / max(_of(o, "slo_share") for o in others), 3)
    ours["itl_beside_best"] = round(_of(ours, "itl_ms_p99") / min(_of(o, "itl_ms_p99") for o in others), 3)
    return list(lines.values())


def _of(line: Mapping[str, float | str], name: str) -> float:
    return float(line[name])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--load", nargs="+", default=["1:0.1", "2:0.3", "3:0.6"], metavar="CHATS:PROMPTS")
    add("--chat", default="30-200:100-300", help="prompt and output tokens of chats")
    add("--long", default="1500-4000:50-150", help="those of long prompts")
    add("--base-ms", type=float, default=20.0)
    add("--token-ms", type=float, default=0.3)
    add("--context-ms", type=float, default=0.0)
    add("--chunk", type=int, default=512, help="tokens of a step at most")
    add("--slo", type=float, nargs=2, default=(4000.0, 120.0), metavar=("TTFT_MS", "ITL_MS"))
    add("--requests", type=int, default=600)
    add("--blocks", type=int, default=6000)
    add("--seeds", type=int, default=3)
    add("more", nargs="*", help="options of signalbox bench plan, behind --")
    args = parser.parse_args()
    for load in args.load:
        for line in compare(load, args, args.more):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
