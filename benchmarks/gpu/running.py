"""Runs stages in processes of their own, each until its time is up, and takes what they say."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.gpu.order import Order
from benchmarks.gpu.results import Results, Values
from benchmarks.gpu.stage_list import Stage, ends_of

TAIL_LINES = 6
"""Last lines of a process that are told with its end."""
LEAST_S = 1.0
"""A stage with less time left is not begun."""
EXIT_S = 20.0
"""Time that a process has for its end behind its last stage."""


class Run:
    """One run of some stages."""

    def __init__(
        self, order: Order, results: Results, log: Path, env: Mapping[str, str], on_end: Callable[[str], None]
    ) -> None:
        """log: takes what the processes print. env: their environment. on_end: told of each stage that has ended."""
        self._order, self._results, self._log, self._env = order, results, log, env
        self._on_end = on_end

    def run(self, stages: Sequence[Stage], seconds: float) -> None:
        """Runs all, in `seconds` altogether. A process that fails, dies or hangs costs its stage alone: the stages
        that follow have another one."""
        started = time.monotonic()
        ends_at = {name: started + end for name, end in ends_of(stages, seconds).items()}
        waiting = list(stages)
        while waiting:
            together = [stage for stage in waiting if stage.group == waiting[0].group]
            if ends_at[together[0].name] - time.monotonic() < LEAST_S:
                self._end(together[0].name, ["it was not run: the time of the run is used up"], 0.0)
                waiting.remove(together[0])
                continue
            process = StageProcess(self._order, together, ends_at, self._log, self._env)
            for stage in process.stages(self._results.add):
                self._end(stage.name, stage.failures, stage.seconds)
                waiting = [each for each in waiting if each.name != stage.name]

    def _end(self, name: str, failures: list[str], seconds: float) -> None:
        self._results.end(name, failures, seconds)
        self._on_end(name)


class Ended:
    """A stage that has ended."""

    def __init__(self, name: str, failures: list[str], seconds: float) -> None:
        self.name, self.failures, self.seconds = name, failures, seconds


class StageProcess:
    """The process of stages that follow each other."""

    def __init__(
        self,
        order: Order,
        stages: Sequence[Stage],
        ends_at: Mapping[str, float],
        log: Path,
        env: Mapping[str, str],
    ) -> None:
        self._names, self._ends_at, self._log = [stage.name for stage in stages], ends_at, log
        self._begun_at = time.monotonic()
        self._log_start = log.stat().st_size if log.exists() else 0
        reader, writer = os.pipe()
        ends = json.dumps({name: ends_at[name] for name in self._names})
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "benchmarks.gpu.child"),
                    *(str(writer), ends, order.to_json()),
                    *(f"{stage.name}={stage.module}" for stage in stages),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=dict(env),
                pass_fds=(writer,),
                start_new_session=True,
            )
        os.close(writer)
        self._pipe = os.fdopen(reader, "rb", buffering=0)
        self._rest = b""

    def stages(self, add: Callable[[str, Values], None]) -> Iterator[Ended]:
        """Yields each stage as it ends, up to the first that does not come to its end; meanwhile `add` takes lines."""
        name = self._names[0]
        try:
            for said in self._said():
                match said.pop("event"):
                    case "begin":
                        name = said["stage"]
                    case "line":
                        add(name, said)
                    case "end":
                        self._names.remove(name)
                        yield Ended(name, said["failures"], said["seconds"])
                        self._begun_at = time.monotonic()
                        name = self._names[0] if self._names else ""
                        if not said["is_whole"]:
                            return
            if name:
                yield Ended(name, [self._last_words()], round(time.monotonic() - self._begun_at, 1))
        finally:
            self.close()

    def close(self) -> None:
        """Ends the process and all that it has started."""
        self._pipe.close()
        try:
            self._process.wait(EXIT_S if not self._names else 0)
        except subprocess.TimeoutExpired:
            self._kill()

    def _kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _said(self) -> Iterator[Values]:
        """What comes over the pipe until the process has closed it, or its stage's time is up."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            while self._names:
                left = self._ends_at[self._names[0]] - time.monotonic()
                if left <= 0 or not selector.select(left):
                    self._kill()
                    return
                chunk = self._pipe.read(1 << 16)
                if not chunk:
                    self._process.wait()
                    return
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                yield from map(json.loads, lines)

    def _last_words(self) -> str:
        """Why the process has ended before its stage had."""
        status = self._process.returncode
        how = f"its process ended with status {status}"
        if status < 0:
            how = f"its process was ended by {signal.Signals(-status).name}"
        if time.monotonic() >= self._ends_at[self._names[0]]:
            how = "its time was up, and its process was ended"
        with self._log.open("rb") as file:
            file.seek(self._log_start)
            tail = [
                line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()
            ]
        return "; ".join([how, *(line[:200] for line in tail[-TAIL_LINES:])])
