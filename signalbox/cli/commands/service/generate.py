"""`signalbox generate`: one completion over gRPC, streamed."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from signalbox.cli.commands.arguments import add_client_files, at_least_one, face
from signalbox.client import DEFAULT_ADDRESS, Client, Delta, Sampling

EXAMPLE = """\
examples:
  signalbox generate "def quicksort(" --max-tokens 80 --repetition-penalty 1.2
  signalbox generate "import " --temperature 0.8 --top-p 0.95 --seed 7 --stop "\\n\\n"
  cat main.py | signalbox generate - --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    add = parser.add_argument
    add("prompt", help="text to continue; - reads it from stdin")
    add(
        "--address",
        type=face,
        default=DEFAULT_ADDRESS,
        help="gRPC of the frontend, grpcs://… by TLS (%(default)s)",
    )
    add("--model", default="", help="model to run (the only one served)")
    add("--max-tokens", type=at_least_one, default=128, metavar="N", help="most output tokens (%(default)s)")
    add("--temperature", type=float, default=0.0, metavar="T", help="0 is greedy (%(default)s)")
    add("--top-k", type=int, metavar="K", help="keep only the K likeliest tokens (all)")
    add("--top-p", type=float, metavar="P", help="keep the likeliest tokens that make up P, 0 to 1 (1)")
    add("--repetition-penalty", type=float, metavar="R", help="above 1: say again less (1; try 1.2)")
    add("--seed", type=int, metavar="N", help="same seed, same output (drawn by the server)")
    add("--stop", action="append", type=unescape, metavar="TEXT", help="end before TEXT; repeatable")
    add_client_files(parser)
    add("--json", action="store_true", help="print one JSON object per delta; the last one has `finished`")


def run(args: argparse.Namespace) -> int:
    """Ctrl-C cancels the request at the server."""
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    asyncio.run(_stream(args, prompt))
    return 0


def unescape(text: str) -> str:
    r"""`\n` and `\t` as a shell passes them."""
    return text.replace("\\n", "\n").replace("\\t", "\t")


async def _stream(args: argparse.Namespace, prompt: str) -> None:
    show = _show_json if args.json else _show_text
    async with Client(args.address, ca=args.ca, cert=args.cert, key=args.key) as client:
        async for delta in client.generate(prompt, model=args.model, **_sampling(args)):
            show(delta)


def _sampling(args: argparse.Namespace) -> Sampling:
    """Only what was asked for; the rest is the server's default."""
    names = ("max_tokens", "temperature", "top_k", "top_p", "repetition_penalty", "seed", "stop")
    chosen: Any = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    sampling: Sampling = chosen
    return sampling


def _show_text(delta: Delta) -> None:
    sys.stdout.write(delta.text + ("\n" if delta.finished else ""))
    sys.stdout.flush()


def _show_json(delta: Delta) -> None:
    record: dict[str, Any] = {"text": delta.text, "token_ids": delta.token_ids}
    if delta.finished:
        done = delta.finished
        record["finished"] = {name: getattr(done, name) for name in done.__dataclass_fields__}
    print(json.dumps(record), flush=True)
