"""`signalbox chat`: a conversation over HTTP, where the frontend applies the model's chat template."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Generator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from signalbox.cli.commands.arguments import add_client_files, at_least_one, http_client
from signalbox.errors import SignalboxError, UnavailableError

if TYPE_CHECKING:
    from signalbox.cli.http_client import HttpClient

EXAMPLE = """\
examples:
  signalbox chat
  signalbox chat --url http://127.0.0.1:8000 --system "Answer briefly." --temperature 0.7
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    add = parser.add_argument
    add("--url", default="http://127.0.0.1:8000", help="HTTP of the frontend (%(default)s)")
    add("--model", default="", help="model to talk with (the first one served)")
    add("--system", metavar="TEXT", help="message that the conversation starts with")
    add("--max-tokens", type=at_least_one, default=256, metavar="N", help="per answer (%(default)s)")
    add("--temperature", type=float, default=0.0, metavar="T", help="0 is greedy (%(default)s)")
    add_client_files(parser)


def run(args: argparse.Namespace) -> int:
    """Reads lines until end of file; Ctrl-C stops an answer, or the conversation."""
    client = http_client(args)
    model = args.model or _first_model(client)
    options = {"model": model, "max_tokens": args.max_tokens, "temperature": args.temperature}
    messages = [{"role": "system", "content": args.system}] if args.system else []
    print(f"talking with {model}; Ctrl-C stops an answer, Ctrl-D leaves")
    with suppress(ImportError):
        importlib.import_module("readline")  # line editing and history for input()
    with suppress(EOFError):
        while True:
            messages.append({"role": "user", "content": input("you> ")})
            _answer(client, options, messages)
    print()
    return 0


def _answer(client: HttpClient, options: dict[str, Any], messages: list[dict[str, str]]) -> None:
    """Prints the answer and adds it to the messages; takes the question back when there is none."""
    pieces: list[str] = []
    try:
        with closing(_pieces(client, options, messages)) as stream:
            for piece in stream:
                pieces.append(piece)
                sys.stdout.write(piece)
                sys.stdout.flush()
    except KeyboardInterrupt:
        pass
    except UnavailableError:
        raise
    except SignalboxError as error:
        print(f"signalbox: {error.message}", file=sys.stderr)
    print()
    if pieces:
        messages.append({"role": "assistant", "content": "".join(pieces)})
    else:
        messages.pop()


def _pieces(
    client: HttpClient, options: dict[str, Any], messages: list[dict[str, str]]
) -> Generator[str, None, None]:
    body = {**options, "messages": messages, "stream": True}
    with closing(client.post_stream("/v1/chat/completions", body)) as events:
        for event in events:
            for choice in event["choices"]:
                yield choice["delta"].get("content") or ""


def _first_model(client: HttpClient) -> str:
    models = client.get("/v1/models")["data"]
    if not models:
        raise UnavailableError("no model is served yet; is a worker running? see `signalbox status`")
    return str(models[0]["id"])
