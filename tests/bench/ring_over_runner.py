"""What a ring of services leaves of its runner: the same load on both, taking turns in one run.

    python -m tests.bench.ring_over_runner --model DIR --dtype bfloat16 --streams 1 32 64 --rounds 3

The ring is up all the time, and idle while the runner is measured. Each round of a number of streams starts the runner
by itself (`signalbox.benchmarks.runner.bench`), and then loads the ring over HTTP (`bench load`). One JSON object per
round: at one stream tokens per second of decoding (1,000 over the median time per token), else of all output with
prompts; and one with the medians for each number of streams.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from statistics import median
from typing import Any

from tests.bench.peers import RUN_TIMEOUT_S, load, running

RING = (
    "{python} -m signalbox.cli.main up --no-proof --model {model} --dtype {dtype} --quantization {quantization} "
    "--http 127.0.0.1:{{port}} --grpc 127.0.0.1:{{other}} {more}"
)


def main() -> None:
    """Measures and prints."""
    args = arguments()
    command = RING.format(
        python=sys.executable,
        model=args.model,
        dtype=args.dtype,
        quantization=args.quantization,
        more=args.ring_options,
    )
    with running(command) as url:
        for streams in args.streams:
            ratios = []
            for number in range(args.rounds):
                alone, ring = runner_tok_s(streams, args), ring_tok_s(url, streams, args)
                ratios.append(ring / alone)
                line = {"streams": streams, "round": number, "runner": alone, "ring": ring}
                print(json.dumps(line | {"ratio": round(ring / alone, 3)}), flush=True)
            print(json.dumps({"streams": streams, "ratio_median": round(median(ratios), 3)}), flush=True)


def runner_tok_s(streams: int, args: argparse.Namespace) -> float:
    """Tokens per second of a runner in a process of its own, whose threads wait as a worker's do."""
    options = {
        "model": args.model,
        "dtype": args.dtype,
        "quantization": args.quantization,
        "streams": streams,
        "prompt-tokens": args.prompt_tokens,
        "output-tokens": args.output_tokens,
    }
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    done = subprocess.run(
        [sys.executable, "-m", "signalbox.benchmarks.runner.bench", "--json", *flags],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
        env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "2000"},
    )
    if done.returncode:
        raise RuntimeError(done.stderr or done.stdout)
    (told,) = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    return float(told["decode_tok_s" if streams == 1 else "output_tok_s"])


def ring_tok_s(url: str, streams: int, args: argparse.Namespace) -> float:
    """Tokens per second that clients of the ring see."""
    told: dict[str, Any] = load(url, streams, args)
    if told["failed"]:
        raise RuntimeError(f"requests failed: {told['errors']}")
    return round(1e3 / told["tpot_ms_p50"], 1) if streams == 1 else float(told["output_tok_s"])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", required=True)
    add("--dtype", default="bfloat16")
    add("--quantization", default="none")
    add("--streams", type=int, nargs="+", default=[1, 32, 64])
    add("--rounds", type=int, default=3)
    add("--prompt-tokens", type=int, default=128)
    add("--output-tokens", type=int, default=128)
    add("--requests-per-stream", type=int, default=2)
    add("--vocab-size", type=int, default=30_000)
    add("--ring-options", default="", help="more words for `signalbox up`")
    return parser.parse_args()


if __name__ == "__main__":
    main()
