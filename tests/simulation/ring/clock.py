"""Virtual time: one queue of events for all processes of a ring, and an event loop for each of them.

Time stands still while anything is ready, and then jumps to the next timer, so that a minute of a ring takes a part of
a second and a seed replays exactly.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

MOST_EVENTS_AT_ONCE = 200_000
"""More without any time passing are a loop that spins."""


class Stuck(AssertionError):  # noqa: N818 - it is a finding, as every other failed assertion
    """Processes keep each other busy, and time does not pass."""


class Event:
    """A call to come; what `call_soon` and `call_at` return."""

    __slots__ = ("args", "callback", "cancelled_", "context", "process", "time")

    def __init__(
        self,
        process: Process | None,
        time: float,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self.process, self.time, self.callback, self.args = process, time, callback, args
        self.context = context
        self.cancelled_ = False

    def cancel(self) -> None:
        """It is not called any more."""
        self.cancelled_ = True

    def cancelled(self) -> bool:
        """As `asyncio.Handle.cancelled`."""
        return self.cancelled_

    def when(self) -> float:
        """As `asyncio.TimerHandle.when`."""
        return self.time


class World:
    """The clock, what is to come, and the dice."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.num_events = self.num_tasks = 0
        self.after_event: Callable[[Process], None] | None = None
        """Called behind every `look_every`-th event with the process that it concerned."""
        self.look_every = 1
        self.processes: list[Process] = []
        self._ready: deque[Event] = deque()
        self._timers: list[tuple[float, int, Event]] = []
        self._sequence = 0

    def at(
        self, delay: float, callback: Callable[..., Any], *args: Any, process: Process | None = None
    ) -> Event:
        """Calls back in `delay` seconds, as an event of `process`; None: of nobody, whatever becomes of processes."""
        event = Event(process, self.now + delay, callback, args, None)
        self.push(event)
        return event

    def push(self, event: Event) -> None:
        """Takes an event that is to come at its time."""
        self._sequence += 1
        heapq.heappush(self._timers, (event.time, self._sequence, event))

    def push_ready(self, event: Event) -> None:
        """Takes an event that is to come now, behind all that are to come now."""
        self._ready.append(event)

    def run(self, seconds: float) -> None:
        """Lets so much time pass."""
        end = self.now + seconds
        at_once = 0
        try:
            while True:
                if self._ready:
                    event = self._ready.popleft()
                    at_once += 1
                    if at_once > MOST_EVENTS_AT_ONCE:
                        raise Stuck(f"{event.callback} and others spin at {self.now:.3f} s")
                elif self._timers and self._timers[0][0] <= end:
                    event = heapq.heappop(self._timers)[2]
                    if event.time > self.now:
                        self.now, at_once = event.time, 0
                else:
                    self.now = end
                    return
                if not event.cancelled_:
                    self._dispatch(event)
        finally:
            asyncio._set_running_loop(None)

    def _dispatch(self, event: Event) -> None:
        process = event.process
        if process is None:
            asyncio._set_running_loop(None)
            event.callback(*event.args)
        elif not process.alive:
            return
        elif process.frozen:
            process.backlog.append(event)
            return
        else:
            asyncio._set_running_loop(process.loop)
            self.num_events += 1
            if event.context is None:
                event.callback(*event.args)
            else:
                event.context.run(event.callback, *event.args)
            if self.after_event is not None and not self.num_events % self.look_every:
                self.after_event(process)

    def close(self) -> None:
        """Ends what still hangs of all processes, dead and alive, without running a line of the ring."""
        for process in self.processes:
            process.alive = False
        for process in self.processes:
            process.dispose()
        self._ready.clear()
        self._timers.clear()


class Process:
    """One process of a ring: what it does stands still while it is frozen, and never goes on once it has ended."""

    def __init__(self, world: World, name: str, host: str) -> None:
        self.world, self.name, self.host = world, name, host
        self.loop = ProcessLoop(self)
        self.alive = True
        self.frozen = False
        self.frozen_since = self.thawed_at = self.stood_s = 0.0
        """When it was frozen last and went on last, and how long it stood still then."""
        self.backlog: list[Event] = []
        """What came while it was frozen."""
        self.clock_skew_s = 0.0
        """By how much its wall clock is wrong."""
        self.on_end: list[Callable[[], None]] = []
        """Called when it ends, for whatever cause."""
        self.node: Any = None
        """The service that it runs, if it is one."""
        self.tasks: list[asyncio.Task[Any]] = []
        self.num_tasks = 0
        world.processes.append(self)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs `work` in it, from anywhere."""
        return self.loop.create_task(work)

    def end(self) -> None:
        """It is no more: not a line of it runs from here on."""
        if self.alive:
            self.alive = False
            for call in self.on_end:
                call()

    def freeze(self) -> None:
        """As SIGSTOP."""
        self.frozen, self.frozen_since = True, self.world.now

    def thaw(self) -> None:
        """As SIGCONT: what came meanwhile comes now, in order."""
        self.frozen, self.thawed_at, self.stood_s = False, self.world.now, self.world.now - self.frozen_since
        backlog, self.backlog = self.backlog, []
        for event in backlog:
            self.world.push_ready(event)

    def dispose(self) -> None:
        """Closes its coroutines now, not whenever the garbage collector comes by; also those that closing begins."""
        asyncio._set_running_loop(self.loop)
        while self.tasks:  # a new list may take its place meanwhile
            task = self.tasks.pop(0)
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(RuntimeError, ValueError):  # it awaits something while it is closed
                    task.get_coro().close()  # type: ignore[union-attr]
        asyncio._set_running_loop(None)
        self.backlog.clear()


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address, so that a seed replays exactly."""

    def __init__(self, coro: Coroutine[Any, Any, Any], number: int, **options: Any) -> None:
        self.number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number


class ProcessLoop(asyncio.AbstractEventLoop):
    """What asyncio needs of a loop; the world runs it."""

    def __init__(self, process: Process) -> None:
        self.process, self._world = process, process.world

    def time(self) -> float:
        return self._world.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Event:
        event = Event(self.process, self._world.now, callback, args, context or contextvars.copy_context())
        self._world.push_ready(event)
        return event

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Event:
        return self.call_at(self._world.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Event:
        event = Event(self.process, when, callback, args, context or contextvars.copy_context())
        self._world.push(event)
        return event

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        process = self.process
        process.num_tasks += 1
        self._world.num_tasks += 1
        name = name or f"{process.name}-{process.num_tasks}"
        task = _Task(coro, self._world.num_tasks, loop=self, name=name, context=context)
        if len(process.tasks) > 200 and process.num_tasks % 100 == 0:
            process.tasks = [other for other in process.tasks if not other.done()]
        process.tasks.append(task)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """At once: what real threads do beside the loop is simulated elsewhere, or does not matter."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A callback that fails in a live process is a finding."""
        error = context.get("exception")
        if self.process.alive and error is not None and "task" not in context and "future" not in context:
            raise error

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return not self.process.alive

    def get_task_factory(self) -> None:
        return None


def current_process() -> Process:
    """Whose line runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ProcessLoop)
    return loop.process
