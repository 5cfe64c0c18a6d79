"""One run of `signalbox up`: start, wait until ready, prove it, stay, stop."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from signalbox import __version__
from signalbox.cli.admin_client import admin_client, is_drained
from signalbox.cli.ring import proof
from signalbox.cli.ring.proof import say
from signalbox.cli.ring.readiness import tell_ready, tell_serving
from signalbox.cli.ring.ring import Ring, worker_name
from signalbox.cli.ring.supervisor import Supervisor, dialable
from signalbox.errors import SignalboxError
from signalbox.runtime.start.interpreter import module_command

STILL_WAITING_S = 10.0
DRAINED_POLL_S = 1.0
PROXY_VARIABLES = ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
"""What curl reads; not HTTP_PROXY, which a request to a CGI program could set."""
BLAME_S = 0.5
"""How long a failed proof waits for the supervisor to find a dead service, the better explanation."""


class BringUp:
    """Runs a ring until a signal or the death of a service."""

    def __init__(self, ring: Ring, supervisor: Supervisor, proof: bool) -> None:
        self._ring = ring
        self._supervisor = supervisor
        self._proof = proof
        self._ready = False
        self._signal: signal.Signals | None = None
        self._interrupted = asyncio.Event()

    async def run(self) -> int:
        """Returns the exit status; nothing is left running, however it ends."""
        self._catch_signals()
        try:
            self._announce()
            self._supervisor.start()
            await first_of(self._supervisor.watch(), self._interrupted.wait(), self._serve())
        except SignalboxError as error:
            warn(f"signalbox: {error.message}")
            return 1
        finally:
            say("stopping frontend, workers, scheduler (Ctrl-C: at once)")
            await self._supervisor.stop()
            say("stopped")
        return 0 if self._ready or self._signal is None else 128 + self._signal

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        """The first one stops in order, a second Ctrl-C at once; `make` sends SIGTERM twice."""
        if number == signal.SIGINT == self._signal:
            self._supervisor.kill()
        self._signal = number
        self._interrupted.set()

    def _announce(self) -> None:
        ring = self._ring
        say(f"signalbox {__version__}, model {ring.served_model_name} ({ring.model})")
        count = len(ring.workers)
        workers = "1 worker" if count == 1 else f"{count} workers"
        num_frontends = ring.num_frontends + len(ring.grpc_health)
        frontends = "frontend" if num_frontends == 1 else f"{num_frontends} frontends"
        schedulers = "scheduler" if ring.standby is None else "2 schedulers, one of which stands by"
        say(f"starting {schedulers}, {workers} and {frontends}; their logs are in {self._supervisor.log_dir}")

    async def _serve(self) -> None:
        await self._wait_until_ready()
        self._supervisor.ready = True
        if self._proof:
            try:
                await self._prove()
            except SignalboxError:
                await asyncio.sleep(BLAME_S)
                raise
        say(next_steps(self._ring))
        self._ready = True
        await wait_drained(self._ring.scheduler_list)
        say("drained: no request is left")

    async def _prove(self) -> None:
        ring = self._ring
        if ring.chats:
            await proof.answer(dialable(ring.http), ring.served_model_name)
        else:
            await proof.complete(dialable(ring.grpc))

    async def _wait_until_ready(self) -> None:
        """A frontend is ready with its first worker; we wait for all of them."""
        started = time.monotonic()
        services = dict(self._ring.schedulers)
        services |= {worker_name(index): at for index, at in enumerate(self._ring.workers)}
        grpc_probes = self._ring.grpc_probes
        waiting = [*services, *self._ring.frontend_names, *grpc_probes]

        def tell(name: str) -> None:
            waiting.remove(name)
            say(f"  {name} is ready after {time.monotonic() - started:.1f} s")

        async def tell_waiting() -> None:
            while True:
                await asyncio.sleep(STILL_WAITING_S)
                say(f"  still waiting for {', '.join(waiting)} ({time.monotonic() - started:.0f} s)")

        dialled = {name: dialable(at) for name, at in services.items()}
        async with in_background(tell_waiting()):
            await asyncio.gather(
                tell_serving(dialled, tell),
                *(tell_ready(at, [name], tell) for name, at in grpc_probes.items()),
                tell_ready(
                    dialable(self._ring.http),
                    self._ring.frontend_names,
                    tell,
                    is_tls=self._ring.has_public_tls,
                ),
            )


async def wait_drained(schedulers: str) -> None:
    """Returns when every worker drains (`signalbox drain`) and nothing runs any more."""
    async with admin_client(schedulers) as link:
        while True:
            await asyncio.sleep(DRAINED_POLL_S)
            with suppress(SignalboxError):  # the supervisor knows better what has happened to it
                workers = (await link.status()).workers
                if workers and all(map(is_drained, workers)):
                    return


def next_steps(ring: Ring) -> str:
    """Addresses, and commands that work as they stand."""
    http, grpc = dialable(ring.http), dialable(ring.grpc)
    scheme = "https" if ring.has_public_tls else "http"
    if ring.has_public_tls:
        grpc = f"grpcs://{grpc}"
    schedulers = ",".join(map(dialable, ring.schedulers.values()))
    question = {"messages": [{"role": "user", "content": proof.QUESTION}]}
    body = {"model": ring.served_model_name, **(question if ring.chats else {"prompt": proof.PROMPT})}
    path = "/v1/chat/completions" if ring.chats else "/v1/completions"
    data = json.dumps(body | {"temperature": 0})
    program = program_name()
    has_page = not any(flag.startswith(("--page=", "--no-page")) for flag in ring.frontend_flags)
    page = f"  page        {scheme}://{http}/\n" if has_page else ""
    at_grpc = "" if grpc == "127.0.0.1:7301" else f" --address {grpc}"
    completion = "" if ring.chats else f"  {program} generate {shlex.quote(proof.PROMPT)}{at_grpc}\n"
    return f"""
signalbox is up:
{page}  OpenAI API  {scheme}://{http}/v1
  gRPC API    {grpc}
  scheduler   {schedulers}

Try, in another terminal:
{completion}  {program} chat{"" if http == "127.0.0.1:8000" else f" --url {scheme}://{http}"}
  {program} status{"" if schedulers == "127.0.0.1:7300" else f" --scheduler {schedulers}"}
  {_curl()} {scheme}://{http}{path} -H 'Content-Type: application/json' -d {shlex.quote(data)}

Ctrl-C stops everything."""


def _curl() -> str:
    """How to type curl: a proxy for all of this machine's programs does not reach the ring."""
    has_proxy = any(os.environ.get(name) for name in PROXY_VARIABLES)
    return "curl --noproxy '*'" if has_proxy else "curl"


def program_name() -> str:
    """What to type to run the command line again: it may not be on the PATH."""
    here = Path(sys.argv[0])
    if here.name != "signalbox":
        return " ".join(module_command("signalbox"))
    if shutil.which("signalbox"):
        return "signalbox"
    try:
        return os.path.relpath(here)
    except FileNotFoundError:  # the working directory is gone
        return str(here)


def warn(text: str) -> None:
    """Writes a line to stderr."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


async def first_of(*work: Awaitable[Any]) -> None:
    """Returns or raises as the first one does, and cancels the others."""
    async with in_background(*work) as tasks:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


@asynccontextmanager
async def in_background(*work: Awaitable[Any]) -> AsyncIterator[Sequence[asyncio.Future[Any]]]:
    """Runs `work` until the block ends."""
    tasks = [asyncio.ensure_future(item) for item in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
