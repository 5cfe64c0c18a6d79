"""`signalbox bench serve`: measures serving on this machine, through a ring of its own.

Scheduler, worker and frontend start on free ports; the client sends prompts of random token ids over gRPC or HTTP.
Each line is a batch whose streams all start together. --reference runs the same batch with plain
transformers, and says what the machine's memory and arithmetic allow.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from signalbox.benchmarks.load.draw_arguments import add_draw_arguments, draw_of
from signalbox.benchmarks.load.driver import Link
from signalbox.benchmarks.load.grpc_link import GrpcLink
from signalbox.benchmarks.load.http_link import HttpLink
from signalbox.benchmarks.load.output import Column, Printer
from signalbox.benchmarks.load.summary import Figures
from signalbox.benchmarks.plots import check_plot, draw
from signalbox.benchmarks.serve import reference
from signalbox.benchmarks.serve.batch import measure_batch, median_of
from signalbox.benchmarks.serve.local_ring import LocalRing
from signalbox.benchmarks.serve.pinning import core_for_one
from signalbox.benchmarks.serve.reference import Shape
from signalbox.cli.commands.arguments import at_least_one
from signalbox.cli.commands.machine import up
from signalbox.cli.identity import add_tls
from signalbox.cli.models.name import find_model
from signalbox.cli.ring.ring import DEMO_MODEL, Ring
from signalbox.cli.ring.supervisor import free_addresses
from signalbox.errors import InvalidRequestError, StartupError
from signalbox.runtime.cores import threads_per_worker

EXAMPLE = """\
examples:
  signalbox bench serve --streams 1 32 64
  signalbox bench serve --model ~/models/Qwen3-0.6B --dtype bfloat16 --reference --json
  signalbox bench serve --runner sim --worker-set sim-base-ms=0 --streams 256
  signalbox bench serve --runner sim --worker-set sim-base-ms=16 --streams 256 --over http --pin-frontend

out tok/s     over the whole batch, prompts included    decode tok/s  while all streams decode
step          wall clock per step of the worker         execute       of it, in the model
else          share of the time outside the model       idle          share in which the worker does nothing
deliver       from a worker's message to the last piece of it that the frontend sends on
tok/cpu s F   output tokens per processor second of the frontend
cpu F/S/W/C   processor seconds of frontend, scheduler, worker and this client
"""
WARM_UP_TOKENS = 8
SIM_VOCAB_SIZE = 4096
MODEL_NAME = "bench"
COLUMNS = (
    Column("system", "system"),
    Column("streams", "streams"),
    Column("out tok/s", "output_tok_s"),
    Column("decode tok/s", "decode_tok_s"),
    Column("ttft p50", "ttft_ms_p50"),
    Column("ttft p99", "ttft_ms_p99"),
    Column("itl p50", "itl_ms_p50", 2),
    Column("itl p99", "itl_ms_p99", 2),
    Column("step ms", "step_ms", 2),
    Column("execute", "step_execute_ms", 2),
    Column("else", "step_else_share", percent=True),
    Column("idle", "worker_idle_share", percent=True),
    Column("deliver p50", "delivery_ms_p50", 2),
    Column("deliver p99", "delivery_ms_p99", 2),
    Column("tok/cpu s F", "frontend_tok_cpu_s"),
    Column("cpu F", "cpu_s_frontend"),
    Column("cpu S", "cpu_s_scheduler"),
    Column("cpu W", "cpu_s_worker-0"),
    Column("cpu C", "cpu_s_client"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    add: Any = parser.add_argument
    add("--model", default=str(DEMO_MODEL), metavar="MODEL", help="as `signalbox up --model` (demo model)")
    add("--streams", type=at_least_one, nargs="+", default=[1, 32, 64], metavar="N", help="(1 32 64)")
    add("--prompt-tokens", type=at_least_one, default=128, metavar="N", help="(%(default)s)")
    add("--output-tokens", type=at_least_one, default=128, metavar="N", help="(%(default)s)")
    add("--repeat", type=at_least_one, default=3, metavar="N", help="medians of N runs (%(default)s)")
    add_draw_arguments(add)
    add("--over", choices=("grpc", "http"), default="grpc", help="face of the frontend (%(default)s)")
    add(
        "--pin-frontend",
        action="store_true",
        help="the frontend alone on the first core, everything else on the others (Linux)",
    )
    add_tls(parser)
    add("--reference", action="store_true", help="also transformers, and the machine's ceiling")
    add("--json", action="store_true", help="one JSON object per line, with everything that was measured")
    add("--plot", type=Path, metavar="FILE", help="also draw the figures (.svg, .png, .pdf)")
    up.add_engine_arguments(parser.add_argument_group("the engine (default: the services' own)"))
    up.add_other_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Measures and prints; the ring is gone afterwards, however it ends."""
    check_plot(args.plot)
    args.model = find_model(args.model).directory
    if args.reference and args.runner == "sim":
        raise InvalidRequestError("--reference needs a model; the sim runner has none", field="reference")
    if args.reference and args.temperature:
        raise InvalidRequestError("--reference decodes greedily, not at a temperature", field="reference")
    with core_for_one("pin_frontend") if args.pin_frontend else nullcontext() as core:
        _measure(args, core)
    return 0


def _measure(args: argparse.Namespace, core: int | None) -> None:
    """`core` is the frontend's own; None: it shares them with all others."""
    args.threads = args.threads or threads_per_worker()
    shapes = [Shape(streams, args.prompt_tokens, args.output_tokens) for streams in args.streams]
    head: Figures = {
        "benchmark": "serve",
        "model": args.model.name,
        "dtype": args.dtype or "auto",
        "quantization": args.quantization or "auto",
        "threads": args.threads,
        "prompt_tokens": args.prompt_tokens,
        "output_tokens": args.output_tokens,
        "repeat": args.repeat,
        "over": args.over,
        **draw_of(args).fields(),
    }
    printer = Printer(COLUMNS, as_json=args.json)
    printer.note(
        f"{args.model.name}: {args.prompt_tokens} prompt and {args.output_tokens} output tokens, worker with "
        f"{args.threads} threads, over {args.over}, medians of {args.repeat}; times in ms"
    )
    measured = _measure_ring(args, shapes, head, printer, core)
    if args.reference:
        _print_reference(args, shapes, head, measured, printer)
    if args.plot is not None:
        draw("serve", printer.lines, args.plot)


def _measure_ring(
    args: argparse.Namespace, shapes: list[Shape], head: Figures, printer: Printer, core: int | None
) -> dict[int, Figures]:
    """Figures by number of streams; each line is printed as soon as it is there."""
    addresses = free_addresses(5)
    ring = LocalRing(_make_ring(args, addresses))
    options: Any = {
        "vocab_size": SIM_VOCAB_SIZE if args.runner == "sim" else read_vocab_size(args.model),
        "worker_metrics": addresses[-1],
        "frontend": addresses[1],
        "cpu_s": ring.cpu_s,
    }
    measured: dict[int, Figures] = {}

    async def measure() -> None:
        if core is not None:
            ring.move("frontend", core)
        link = _make_link(args, addresses)
        for shape in shapes:
            short = Shape(shape.streams, shape.prompt_tokens, min(shape.output_tokens, WARM_UP_TOKENS))
            await measure_batch(link, short, seed=_new_seed(), **options)
            runs = [await measure_batch(link, shape, seed=_new_seed(), **options) for _ in range(args.repeat)]
            figures = head | {"system": "signalbox", "streams": shape.streams} | median_of(runs)
            measured[shape.streams] = figures
            printer.line(figures)
            if figures["client_bottleneck"]:
                printer.note(f"  not the server's figures: {figures['client_bottleneck']}")
        await link.close()

    asyncio.run(ring.use(measure))
    return measured


def _make_link(args: argparse.Namespace, addresses: Sequence[str]) -> Link:
    if args.over == "http":
        return HttpLink(f"http://{addresses[1]}", MODEL_NAME, draw=draw_of(args))
    return GrpcLink(addresses[2], MODEL_NAME, draw=draw_of(args))


def _make_ring(args: argparse.Namespace, addresses: Sequence[str]) -> Ring:
    """What `signalbox up` would start: one worker, whose metrics are read, and one frontend."""
    scheduler, http, grpc, worker, metrics = addresses
    chosen = {
        "scheduler": scheduler,
        "http": http,
        "grpc": grpc,
        "worker_listen": worker,
        "worker_set": [*args.worker_set, f"--metrics={metrics}"],
        "workers": 1,
        "frontends": 1,
        "served_model_name": [MODEL_NAME],
        "standby": None,
        "restart_workers": False,
        "log_format": None,
        "insecure": False,
        "metrics": None,
    }
    return up.make_ring(argparse.Namespace(**vars(args) | chosen))


def _new_seed() -> str:
    """Each run has prompts of its own, which no cache knows."""
    return str(random.getrandbits(64))


def _print_reference(
    args: argparse.Namespace,
    shapes: list[Shape],
    head: Figures,
    measured: dict[int, Figures],
    printer: Printer,
) -> None:
    dtype = args.dtype or "auto"
    found = reference.measure(args.model, shapes, dtype=dtype, threads=args.threads, repeat=args.repeat)
    machine = found.machine_figures
    if args.json:
        printer.line(head | machine)
    printer.note(
        f"machine: reads {found.machine.read_bytes_s / 1e9:.1f} GB/s, multiplies "
        f"{found.machine.gemm_flop_s / 1e9:,.0f} GFLOP/s in {machine['dtype']}"
    )
    for shape in shapes:
        ours = measured[shape.streams]
        others = {"transformers": found.transformers[shape.streams], "ceiling": found.machine.ceiling(shape)}
        for system, figures in others.items():
            if figures:
                ratios = reference.compare(ours, figures)
                line = head | figures | {"system": system, "streams": shape.streams} | ratios
                printer.line(line)
                _tell_ratio(system, ratios, printer)


def _tell_ratio(system: str, ratios: dict[str, float], printer: Printer) -> None:
    whole, decode = (ratios.get(f"{name}_ratio") for name in ("output_tok_s", "decode_tok_s"))
    parts = [f"{ratio:.2f} {when}" for ratio, when in ((whole, "over all"), (decode, "in decoding")) if ratio]
    if parts:
        printer.note(f"  signalbox / {system}: {', '.join(parts)}")


def read_vocab_size(model: Path) -> int:
    """The size of the vocabulary in config.json. Raises StartupError when it is not there."""
    try:
        config = json.loads((model / "config.json").read_text())
        return int(config.get("vocab_size") or config["text_config"]["vocab_size"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise StartupError(f"{model / 'config.json'} does not say vocab_size") from None
