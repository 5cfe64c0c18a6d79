"""`signalbox batch`: a file of requests, as OpenAI's batches have them, answered by a server that keeps files."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from signalbox.cli.commands.arguments import add_client_files, http_client
from signalbox.errors import InvalidRequestError, UnavailableError

if TYPE_CHECKING:
    from signalbox.cli.http_client import HttpClient

EXAMPLE = """\
examples:
  signalbox up --frontend-set files-dir=/var/tmp/signalbox
  signalbox batch requests.jsonl --out answers.jsonl
  signalbox batch batch_18c0ffee00000000deadbeef --out answers.jsonl   # one that was begun before

A line of the file: {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
What was refused or did not run goes to answers.jsonl.errors. The exit status is 1 when there is such a file. Ctrl-C
leaves the batch to the server and prints its id.
"""
BATCH_PREFIX = "batch_"
POLL_S = 1.0
MAX_FIRST_LINE_BYTES = 64 << 20
ENDED = ("completed", "failed", "cancelled", "expired")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    add = parser.add_argument
    add("input", metavar="FILE|BATCH", help="JSON lines, or the id of a batch that was begun before")
    add("--out", type=Path, required=True, metavar="FILE", help="where answers go")
    add("--url", default="http://127.0.0.1:8000", help="HTTP of the frontend (%(default)s)")
    add("--window", default="24h", metavar="TIME", help="give up after so long, e.g. 30m (%(default)s)")
    add_client_files(parser)


def run(args: argparse.Namespace) -> int:
    """0: every line was answered."""
    client = http_client(args)
    batch_id = (
        args.input if args.input.startswith(BATCH_PREFIX) else _begin(client, Path(args.input), args.window)
    )
    try:
        batch = _wait(client, batch_id)
    except KeyboardInterrupt:
        print(
            f"signalbox: {batch_id} goes on; `signalbox batch {batch_id} --out FILE` waits for it",
            file=sys.stderr,
        )
        raise
    if batch["status"] == "failed":
        raise InvalidRequestError("; ".join(_told(error) for error in batch["errors"]["data"][:10]))
    _fetch(client, batch["output_file_id"], args.out)
    _fetch(client, batch["error_file_id"], args.out.with_name(f"{args.out.name}.errors"))
    counts = batch["request_counts"]
    print(
        f"{batch['status']}: {counts['completed']} of {counts['total']} lines answered, {counts['failed']} not"
    )
    return 0 if counts["completed"] == counts["total"] else 1


def _begin(client: HttpClient, path: Path, window: str) -> str:
    """The id of a new batch."""
    try:
        with path.open("rb") as file:
            endpoint = _endpoint_in(file.readline(MAX_FIRST_LINE_BYTES))
            file.seek(0)
            sent = client.post_file("/v1/files", {"purpose": "batch"}, file, path.name)
    except OSError as error:
        raise InvalidRequestError(f"cannot read {path}: {error.strerror}") from None
    body = {"input_file_id": sent["id"], "endpoint": endpoint, "completion_window": window}
    batch: dict[str, Any] = client.post("/v1/batches", body)
    return str(batch["id"])


def _endpoint_in(line: bytes) -> str:
    """The endpoint that the first line names; all have to name the same."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(json.loads(line)["url"])
    raise InvalidRequestError("the first line is no JSON object with a url")


def _wait(client: HttpClient, batch_id: str) -> dict[str, Any]:
    """The batch when it has ended. A server that goes away for a while may come back."""
    told = ""
    while True:
        with contextlib.suppress(UnavailableError):
            batch: dict[str, Any] = client.get(f"/v1/batches/{batch_id}")
            counts = batch["request_counts"]
            text = f"{batch_id} {batch['status']}: {counts['completed']} of {counts['total']} lines"
            if text != told:
                print(text, file=sys.stderr, flush=True)
                told = text
            if batch["status"] in ENDED:
                return batch
        time.sleep(POLL_S)


def _fetch(client: HttpClient, file_id: str | None, target: Path) -> None:
    """Writes a file of results; none: it has no lines."""
    if file_id is None:
        return
    part = target.with_name(f"{target.name}.part")
    try:
        with part.open("wb") as file:
            client.download(f"/v1/files/{file_id}/content", file)
        part.replace(target)
    except OSError as error:
        raise InvalidRequestError(f"cannot write {target}: {error.strerror}") from None


def _told(error: dict[str, Any]) -> str:
    line = error.get("line")
    return error["message"] if line is None else f"line {line}: {error['message']}"
