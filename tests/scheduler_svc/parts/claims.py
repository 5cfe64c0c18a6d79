"""What parts claim to read and write (PT3), against what they do."""

from __future__ import annotations

import importlib
import pkgutil
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pytest

import scheduler_svc.core.parts as parts_folder
from scheduler_svc.core.state.part import Part, Parts, Phase, Resource
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker

Print = Any
"""What a value was: nested tuples that can be compared."""


def part_classes() -> list[type[Part]]:
    """All parts of the product, by name."""
    for module in pkgutil.walk_packages(parts_folder.__path__, f"{parts_folder.__name__}."):
        importlib.import_module(module.name)
    found = [each for each in _subclasses(Part) if each.__module__.startswith(parts_folder.__name__)]
    return sorted(found, key=lambda each: each.name)


def _subclasses(kind: type[Part]) -> Iterator[type[Part]]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


class Pair(NamedTuple):
    """Two parts that act in one phase."""

    phase: Phase
    first: type[Part]
    second: type[Part]

    def __str__(self) -> str:
        return f"{self.phase.value}-{self.first.name}-{self.second.name}"

    @property
    def names(self) -> frozenset[str]:
        """Names of the two."""
        return frozenset({self.first.name, self.second.name})

    @property
    def is_independent(self) -> bool:
        """By what they claim."""
        return self.first.acts[self.phase].is_independent(self.second.acts[self.phase])


def pairs() -> list[Pair]:
    """All pairs of parts that act in one phase."""
    both = combinations(part_classes(), 2)
    return [Pair(phase, *each) for each in both for phase in Phase if all(phase in one.acts for one in each)]


@contextmanager
def turned_round(pair: Pair) -> Iterator[None]:
    """Workers that are made meanwhile ask the two in the other order, in that phase alone."""
    add = Parts.add

    def add_turned(parts: Parts, part: Part) -> None:
        add(parts, part)
        acting: list[Part] = list(getattr(parts, pair.phase.value))
        places = [at for at, each in enumerate(acting) if type(each) in pair[1:]]
        if len(places) == 2:
            first, second = places
            acting[first], acting[second] = acting[second], acting[first]
            setattr(parts, pair.phase.value, tuple(acting))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Parts, "add", add_turned)
        yield


class Act(NamedTuple):
    """A part was asked in the phase of a step."""

    worker: str
    step_id: int
    phase: Phase
    part: str


@contextmanager
def watched(*, prints: bool = False) -> Iterator[Mapping[Act, set[Resource]]]:
    """Notes all acts that order something, or claim to write nothing of the step; with `prints` also what each has
    written of the shared state."""
    noted = dict[Act, set[Resource]]()

    def watch(kind: type[Part]) -> None:
        act = kind.act

        def act_watched(part: Any, phase: Phase, step: StepDecision, now: float) -> None:
            worker: Worker | None = getattr(part, "_worker", None)
            before = _shared(worker, part, step) if prints else {}
            orders = _ordered(step)
            act(part, phase, step, now)
            after = _shared(worker, part, step) if prints else {}
            name = worker.info.worker_id if worker is not None else ""
            if prints or _ordered(step) != orders or not kind.acts[phase].writes:
                changed = {each for each in after if after[each] != before[each]}
                noted[Act(name, step.step_id, phase, part.name)] = changed

        patch.setattr(kind, "act", act_watched)

    with pytest.MonkeyPatch.context() as patch:
        for kind in part_classes():
            watch(kind)
        yield noted


def _ordered(step: StepDecision) -> tuple[object, ...]:
    return len(step.checkpoints), len(step.spared_slots), *step.orders


def _shared(worker: Worker | None, part: Any, step: StepDecision) -> dict[Resource, Print]:
    """Prints of all shared state."""
    if worker is None:
        return {Resource.TABLE: print_of(part._table), Resource.COPIES: len(step.copies)}
    num_groups = len(worker.pools)
    states = worker.checkpoints.pool if worker.checkpoints is not None else None
    return {
        Resource.TABLE: print_of(worker.table),
        Resource.POOL: print_of([worker.pool, worker.windows, worker.hosts[:num_groups]]),
        Resource.STATES: print_of([states, worker.hosts[num_groups:]]),
        Resource.COPIES: print_of(step.copies),
    }


def print_of(value: Any) -> Print:
    """A value, and all that it has, as it is now."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, Mapping):
        return type(value).__name__, [(print_of(key), print_of(each)) for key, each in value.items()]
    if isinstance(value, (list, tuple, deque, OrderedDict)):
        return [print_of(each) for each in value]
    if isinstance(value, (set, frozenset)):
        return value.copy()
    if type(value).__module__.startswith("scheduler_svc.core.state") and hasattr(value, "__dict__"):
        if type(value).__name__ == "Request":
            return id(value)
        return type(value).__name__, print_of(vars(value))
    return value
