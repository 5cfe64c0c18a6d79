"""`python -m tests.chaos`: faults for real rings. `--list` names them; exit status 1: a promise was broken."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tests.chaos.faults import ALL, Fault
from tests.chaos.handoff import long as handoffs
from tests.chaos.kinds import make_asks, make_sim_asks
from tests.chaos.long import run_long
from tests.chaos.outcome import Outcome
from tests.chaos.overload import run_overload
from tests.chaos.poison import run_poison
from tests.chaos.tally import Tally, render
from tests.chaos.trial import group, try_faults

TREE = Path(__file__).parents[2]
SHORT = ("worker SIGKILL", "scheduler SIGKILL, back after 1 s")
SHORT_STREAMS, SHORT_TOKENS, SHORT_WINDOW_S = 20, 100, 5.0
Command = Callable[[argparse.Namespace], Coroutine[Any, Any, int]]
"""Returns the exit status."""


def main() -> int:
    """One of the commands."""
    arguments = _parse()
    if arguments.list:
        for fault in ALL:
            print(f"{fault.name} (x {fault.times})")
        return 0
    command: Command = _COMMANDS[arguments.command]
    return asyncio.run(command(arguments))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("command", nargs="?", choices=_COMMANDS, default="faults")
    parser.add_argument("--list", action="store_true", help="name the faults")
    parser.add_argument("--short", action="store_true", help="two faults once, with few streams")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="faults whose names begin so")
    parser.add_argument(
        "--times", type=int, help="repetitions (as in --list; poison, long: 5; handoff: 10 moves)"
    )
    parser.add_argument(
        "--streams", type=int, help="at once (50); long: altogether (1000); poison: 20; handoff: 64"
    )
    parser.add_argument("--at-once", type=int, default=250, help="long: streams at once")
    parser.add_argument(
        "--tokens", type=int, help="output tokens of a stream, about (300; long: 2000; handoff: 1900)"
    )
    parser.add_argument(
        "--hangs", action="store_true", help="poison: it hangs workers, and does not crash them"
    )
    parser.add_argument("--minutes", type=float, default=10, help="overload: how long")
    parser.add_argument("--drafts", choices=("off", "on", "both"), default="both", help="n-gram drafts")
    parser.add_argument("--runner", choices=("torch", "sim"), default="torch", help="of the faults' rings")
    parser.add_argument("--tree", type=Path, default=TREE, help="checkout whose services are run")
    parser.add_argument("--out", type=Path, help="file to which one JSON line per result is added")
    return parser.parse_args()


def short_faults() -> list[tuple[Fault, int]]:
    """Two, once each."""
    return [(replace(fault, window_s=SHORT_WINDOW_S), 1) for fault in ALL if fault.name in SHORT]


async def _run_faults(arguments: argparse.Namespace) -> int:
    wanted = [fault for fault in ALL if _is_wanted(fault, arguments.only)]
    faults = [(fault, arguments.times or fault.times) for fault in wanted]
    if arguments.short:
        faults = short_faults()
    streams, tokens = (SHORT_STREAMS, SHORT_TOKENS) if arguments.short else (50, 300)
    make = make_asks if arguments.runner == "torch" else make_sim_asks
    asks = make(arguments.streams or streams, arguments.tokens or tokens)
    tallies: list[Tally] = []
    expected: list[Outcome] | None = None
    num_broken = 0

    def tell(tally: Tally) -> None:
        tallies.append(tally)
        _tell(tally, arguments.out)

    for drafts in {"off": [False], "on": [True], "both": [False, True]}[arguments.drafts]:
        for shape, some in group(faults, arguments.runner, drafts).items():
            say(f"ring: {shape}")
            try:
                expected = await try_faults(shape, some, asks, arguments.tree.resolve(), say, tell, expected)
            except Exception:  # one ring that fails is not to hide what the others show
                traceback.print_exc()
                num_broken += 1
    print(render(tallies))
    return 0 if not num_broken and all(tally.is_right for tally in tallies) else 1


async def _run_overload(arguments: argparse.Namespace) -> int:
    result = await run_overload(arguments.minutes, arguments.tree.resolve(), say)
    print(json.dumps(result, indent=2))
    _write(result, arguments.out)
    return 1 if result["failures"] else 0


async def _run_long(arguments: argparse.Namespace) -> int:
    tally = await run_long(
        arguments.streams or 1000,
        arguments.at_once,
        arguments.tokens or 2000,
        arguments.times or 5,
        arguments.tree.resolve(),
        say,
    )
    _tell(tally, arguments.out)
    print(render([tally]))
    return 0 if tally.is_right else 1


async def _run_poison(arguments: argparse.Namespace) -> int:
    results = await run_poison(
        arguments.times or 5,
        arguments.streams or 20,
        arguments.tokens or 300,
        arguments.tree.resolve(),
        say,
        hangs=arguments.hangs,
    )
    for result in results:
        print(json.dumps(asdict(result)))
        _write(asdict(result), arguments.out)
    return 0 if all(result.is_right for result in results) else 1


async def _run_handoff(arguments: argparse.Namespace) -> int:
    streams, tokens, times = arguments.streams or 64, arguments.tokens or 1900, arguments.times or 10
    num_wrong = 0
    async for result in handoffs.run_long(streams, tokens, times, arguments.tree.resolve(), arguments.only):
        num_wrong += not handoffs.is_right(result)
        print(json.dumps(result.record(), indent=2), flush=True)
        _write(result.record(), arguments.out)
    return 1 if num_wrong else 0


_COMMANDS: dict[str, Command] = {
    "faults": _run_faults,
    "overload": _run_overload,
    "long": _run_long,
    "poison": _run_poison,
    "handoff": _run_handoff,
}


def _is_wanted(fault: Fault, only: list[str] | None) -> bool:
    return only is None or any(fault.name.startswith(name) for name in only)


def _tell(tally: Tally, out: Path | None) -> None:
    for detail in tally.details[:20]:
        say(f"  {detail}")
    say(json.dumps(tally.record()))
    _write(tally.record(), out)


def _write(record: dict[str, object], out: Path | None) -> None:
    if out is not None:
        with out.open("a") as file:
            file.write(json.dumps(record) + "\n")


def say(text: str) -> None:
    """What happens, to stderr."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
