"""Servers under the same load from the same client, one at a time, in turns.

    python -m tests.bench.peers --streams 1 32 --rounds 2 \
        --server 'signalbox=.venv/bin/signalbox up --no-proof --model DIR \\
            --http 127.0.0.1:{port} --grpc 127.0.0.1:{other}' \
        --server 'llama=llama-server -m FILE.gguf --port {port} -t 2 -np 32 -c 8192 -kvu'

A server is a name and a command; it has to answer at http://127.0.0.1:{port}: /health, /v1/models, and /v1/completions
with prompts of token ids. `{other}` is a second free port. One JSON object per line: name, round, streams and what
clients saw.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.ports import free_ports

START_TIMEOUT_S, STOP_TIMEOUT_S, RUN_TIMEOUT_S = 300, 30, 900


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--server", action="append", required=True, help="NAME=COMMAND; several")
    add("--streams", type=int, nargs="+", default=[1, 8, 32, 64])
    add("--rounds", type=int, default=2)
    add("--prompt-tokens", type=int, default=128)
    add("--requests-per-stream", type=int, default=3)
    add("--output-tokens", type=int, default=128)
    add("--vocab-size", type=int, default=30_000)
    add(
        "--together",
        action="store_true",
        help="all servers are up at once, and idle while others are measured: turns of seconds, for a machine whose "
        "speed changes within minutes",
    )
    args = parser.parse_args()
    if args.together:
        measure_together(args)
        return
    for number in range(args.rounds):
        for server in args.server:
            name, _, command = server.partition("=")
            with running(command) as url:
                for streams in args.streams:
                    line = {"server": name, "round": number, "streams": streams}
                    print(json.dumps(line | load(url, streams, args)), flush=True)


def measure_together(args: argparse.Namespace) -> None:
    """Prints a line for each measurement: rounds within numbers of streams, servers within rounds."""
    with ExitStack() as stack:
        servers = [server.partition("=") for server in args.server]
        urls = [(name, stack.enter_context(running(command))) for name, _, command in servers]
        for streams in args.streams:
            for number in range(args.rounds):
                for name, url in urls:
                    line = {"server": name, "round": number, "streams": streams}
                    print(json.dumps(line | load(url, streams, args)), flush=True)


@contextmanager
def running(command: str) -> Iterator[str]:
    """The address of a server that is up; it is stopped, with all its processes, at the end."""
    port, other = free_ports(2)
    words = shlex.split(command.replace("{port}", str(port)).replace("{other}", str(other)))
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_healthy(process, url)
            yield url
        except RuntimeError:
            log.seek(0)
            sys.stderr.write(log.read()[-4000:])
            raise
        finally:
            stop(process)


def wait_until_healthy(process: subprocess.Popen[bytes] | subprocess.Popen[str], url: str) -> None:
    """RuntimeError if it ends or does not come up."""
    give_up = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < give_up:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                pass
            with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as answer:
                if json.load(answer)["data"]:
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.5)
    raise RuntimeError(f"{url} did not come up")


def stop(process: subprocess.Popen[Any]) -> None:
    """Ends a server's session of processes."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                continue


def load(url: str, streams: int, args: argparse.Namespace) -> dict[str, Any]:
    """What clients saw: output tokens per second, milliseconds to the first token and between tokens."""
    options = {
        "streams": streams,
        "requests": args.requests_per_stream * streams,
        "prompt-tokens": args.prompt_tokens,
        "output-tokens": args.output_tokens,
        "vocab-size": args.vocab_size,
        "warm-up": min(4, streams),
    }
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "signalbox.cli.main", "bench", "load", url, "--json", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr or done.stdout)
    (told,) = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    return dict(told)


if __name__ == "__main__":
    main()
