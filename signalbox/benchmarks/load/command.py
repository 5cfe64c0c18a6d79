"""`signalbox bench load`: puts a server under load and tells what its clients see.

Any address will do: grpc://HOST:PORT for a frontend of ours, http://HOST:PORT for any OpenAI-compatible
server that takes prompts of token ids at /v1/completions. Prompts are random and all different; output is
greedy and always of the length that was asked for (`ignore_eos`).
"""

from __future__ import annotations

import argparse
import asyncio
import random
from pathlib import Path
from typing import Any

from signalbox.benchmarks.load.draw_arguments import add_draw_arguments, draw_of
from signalbox.benchmarks.load.driver import Limit, Link, Window, closed_loop, open_loop
from signalbox.benchmarks.load.output import Column, Printer
from signalbox.benchmarks.load.record import Record
from signalbox.benchmarks.load.self_watch import SelfWatch
from signalbox.benchmarks.load.summary import Figures, Slo, summarize
from signalbox.benchmarks.load.workload import Lengths, Workload, arrivals
from signalbox.benchmarks.plots import check_plot, draw
from signalbox.cli.commands.arguments import (
    above_zero,
    add_client_files,
    address,
    at_least_one,
    client_files,
)
from signalbox.errors import InternalError

EXAMPLE = """\
examples:
  signalbox bench load grpc://127.0.0.1:7301 --streams 1 8 32 --requests 200
  signalbox bench load http://127.0.0.1:8000 --rate 2 4 8 --duration 30 --slo ttft-ms=500,itl-ms=50
  signalbox bench load grpc://127.0.0.1:7301 --prompt-tokens 64-512 --output-tokens 32-256 --json

closed loop (--streams): each stream sends its next request when its last one has ended.
open loop (--rate): requests come at random times (Poisson), however slow the server is; latencies count
  from the time at which a request was to be sent, so that a queue in the client does not hide.

ttft  time to first token               itl   between two messages with output
tpot  mean time per token behind it     e2e   until the end of the request
"""
DEFAULT_REQUESTS = 100
COLUMNS = (
    Column("streams", "streams"),
    Column("rate/s", "rate"),
    Column("done/s", "requests_s", 2),
    Column("failed", "failed"),
    Column("out tok/s", "output_tok_s"),
    *(Column(f"ttft p{n}", f"ttft_ms_p{n}") for n in (50, 90, 99)),
    *(Column(f"itl p{n}", f"itl_ms_p{n}") for n in (50, 90, 99)),
    *(Column(f"tpot p{n}", f"tpot_ms_p{n}") for n in (50, 99)),
    *(Column(f"e2e p{n}", f"e2e_ms_p{n}") for n in (50, 99)),
)
SLO_COLUMNS = (Column("good/s", "goodput_requests_s", 2), Column("in slo", "slo_share", percent=True))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    add: Any = parser.add_argument
    add("target", type=target, metavar="ADDRESS", help="grpc[s]://HOST:PORT or http[s]://HOST:PORT")
    add("--model", default="", help="model to run (the only one served)")
    load = parser.add_mutually_exclusive_group()
    load.add_argument(
        "--streams",
        type=at_least_one,
        nargs="+",
        metavar="N",
        help="closed loop: requests at one time, a line for each N (8)",
    )
    load.add_argument(
        "--rate",
        type=above_zero,
        nargs="+",
        metavar="R",
        help="open loop: requests per second, a line for each R",
    )
    add("--requests", type=at_least_one, metavar="N", help="requests per line (100 if no --duration)")
    add("--duration", type=above_zero, metavar="S", help="seconds after which no more are sent, per line")
    add("--prompt-tokens", type=lengths, default=Lengths(128, 128), metavar="N|A-B", help="(%(default)s)")
    add("--output-tokens", type=lengths, default=Lengths(128, 128), metavar="N|A-B", help="(%(default)s)")
    add(
        "--vocab-size",
        type=at_least_one,
        default=1000,
        metavar="N",
        help="token ids of prompts are drawn below N (%(default)s)",
    )
    add("--warm-up", type=int, default=4, metavar="N", help="requests before, not counted (%(default)s)")
    add(
        "--seed",
        type=int,
        help="same seed, same requests and arrivals (drawn: a server may have cached the prompts of an old one)",
    )
    add_draw_arguments(add)
    add("--slo", type=slo, metavar="K=MS,...", help="goodput: ttft-ms, tpot-ms, itl-ms (p99 of a request)")
    add("--connections", type=at_least_one, default=1, metavar="N", help="of gRPC (%(default)s)")
    add("--timeout", type=above_zero, default=600.0, metavar="S", help="per request (%(default)s)")
    add_client_files(parser)
    add("--json", action="store_true", help="one JSON object per line, with everything that was measured")
    add("--plot", type=Path, metavar="FILE", help="also draw the figures (.svg, .png, .pdf)")


def target(text: str) -> tuple[str, str]:
    """Scheme and what a link of it takes."""
    scheme, _, rest = text.partition("://")
    if scheme in ("grpc", "grpcs"):
        return scheme, address(rest)
    if scheme in ("http", "https") and rest:
        return scheme, text
    raise argparse.ArgumentTypeError(f"{text!r} is not grpc[s]://HOST:PORT or http[s]://HOST:PORT")


def lengths(text: str) -> Lengths:
    """`128` or `64-256`."""
    low, _, high = text.partition("-")
    high = high or low
    if not low.isdecimal() or not high.isdecimal() or not 1 <= int(low) <= int(high):
        raise argparse.ArgumentTypeError(f"{text!r} is not a length such as 128, or a range such as 64-256")
    return Lengths(int(low), int(high))


def slo(text: str) -> Slo:
    """The type of an argument `ttft-ms=500,itl-ms=50`."""
    names = {"ttft-ms": "ttft_ms", "itl-ms": "itl_ms", "tpot-ms": "tpot_ms"}
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            limits[names[name]] = float(value)
        except (KeyError, ValueError):
            raise argparse.ArgumentTypeError(
                f"{part!r} is not one of {', '.join(f'{known}=NUMBER' for known in names)}"
            ) from None
    return Slo(**limits)


def run(args: argparse.Namespace) -> int:
    """Exit status 1 when every request of a line failed."""
    check_plot(args.plot)
    if args.seed is None:
        args.seed = random.randrange(1 << 32)
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    link = make_link(args)
    try:
        model = await link.find_model()
        printer = Printer(COLUMNS + (SLO_COLUMNS if args.slo else ()), as_json=args.json)
        scheme, place = args.target
        where = place if scheme != "grpc" else f"grpc://{place}"
        printer.note(
            f"{where}, model {model}: prompts of {args.prompt_tokens}, outputs of {args.output_tokens} tokens; "
            "times in ms"
        )
        await _warm_up(link, args)
        head: Figures = {"benchmark": "load", "target": where, "model": model, "seed": args.seed}
        head |= {"prompt_tokens": str(args.prompt_tokens), "output_tokens": str(args.output_tokens)}
        head |= draw_of(args).fields()
        status = 0
        for number, load in enumerate(args.rate or args.streams or [8]):
            figures = head | await _measure(link, args, load, f"{args.seed} {number}")
            printer.line(figures)
            _explain(figures, printer)
            status |= figures["failed"] == figures["requests"]
        if args.plot is not None:
            draw("load", printer.lines, args.plot)
        return status
    finally:
        await link.close()


def make_link(args: argparse.Namespace) -> Link:
    """Only what the scheme needs is imported."""
    scheme, place = args.target
    files = client_files(args, f"{scheme}://")
    if scheme in ("grpc", "grpcs"):
        from signalbox.benchmarks.load.grpc_link import GrpcLink  # noqa: PLC0415

        return GrpcLink(
            place,
            args.model,
            draw=draw_of(args),
            connections=args.connections,
            timeout_s=args.timeout,
            files=files if scheme == "grpcs" else None,
        )
    from signalbox.benchmarks.load.http_link import HttpLink  # noqa: PLC0415

    return HttpLink(place, args.model, draw=draw_of(args), timeout_s=args.timeout, files=files)


async def _warm_up(link: Link, args: argparse.Namespace) -> None:
    """Raises what went wrong when nothing works: a measurement would not be worth its time."""
    if args.warm_up <= 0:
        return
    plans = _workload(args, f"warm-up {args.seed}").plans()
    records, _ = await closed_loop(link, plans, args.warm_up, Limit(num_requests=args.warm_up))
    if not any(record.succeeded for record in records):
        raise InternalError(f"no request of the warm-up succeeded: {records[0].error_message or 'no output'}")


async def _measure(link: Link, args: argparse.Namespace, load: float, seed: str) -> Figures:
    requests = args.requests or (None if args.duration else DEFAULT_REQUESTS)
    limit = Limit(requests, args.duration)
    plans = _workload(args, seed).plans()
    watch = SelfWatch()
    async with watch.running():
        if args.rate:
            records, window = await open_loop(link, plans, arrivals(load, seed), limit)
        else:
            records, window = await closed_loop(link, plans, int(load), limit)
    return _head(args, load) | _figures(records, window, args.slo) | watch.figures()


def _head(args: argparse.Namespace, load: float) -> Figures:
    return {"loop": "open", "rate": load} if args.rate else {"loop": "closed", "streams": int(load)}


def _figures(records: list[Record], window: Window, limits: Slo | None) -> Figures:
    late = max((record.sent_at - record.intended_at for record in records), default=0.0)
    return summarize(records, window, limits) | {"send_delay_ms_max": round(late * 1e3, 3)}


def _workload(args: argparse.Namespace, seed: str) -> Workload:
    return Workload(args.prompt_tokens, args.output_tokens, args.vocab_size, seed)


def _explain(figures: Figures, printer: Printer) -> None:
    if figures["errors"]:
        assert isinstance(figures["errors"], dict)
        printer.note("  failed: " + ", ".join(f"{n} {code}" for code, n in figures["errors"].items()))
    if figures["client_bottleneck"]:
        printer.note(
            f"  not the server's figures: {figures['client_bottleneck']}; run several clients, or fewer streams"
        )
