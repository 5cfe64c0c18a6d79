"""Decode steps of fixed sizes: everything from the state of the slots to the logits, as one CUDA graph each."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch

from worker_svc.core.batch import I32
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.kv_cache import KVCache
from worker_svc.runner.cpu.direct_forward import ModuleForward
from worker_svc.runner.cuda.buckets import bucket_for
from worker_svc.runner.cuda.captures import Capture, Results
from worker_svc.runner.cuda.faults import SCARCE, Reason, reason_of, text_of
from worker_svc.runner.cuda.state import DecodeState
from worker_svc.runner.cuda.transfers import upload
from worker_svc.runner.recurrent.rows import DecodeStates
from worker_svc.runner.recurrent.store import StateStore
from worker_svc.runner.sampling.finite import state_sums
from worker_svc.runner.triton.batch import DecodeBatch, make_decode_items

logger = logging.getLogger(__name__)
CAPTURE, REPLAY = "capture", "replay"
"""What can fail of a graph."""


class StepInputs:
    """What the host tells a decode step of `size` rows, in buffers that stay where they are."""

    def __init__(self, state: DecodeState, store: StateStore | None, size: int) -> None:
        """store: of recurrent states; None: the model has none."""
        padding = [state.num_slots]
        if store is not None:
            last = np.full(2, store.num_slots - 1, np.int32)
            padding += store.rows_of(last, np.array([0, 1], np.int32)).tolist()
        self._padding = np.array(padding, np.int64)
        self._columns = torch.from_numpy(np.tile(self._padding[:, None], size)).to(state.device)

    @property
    def slots(self) -> torch.Tensor:
        """[size] what to run; rows that fill up are of the slot behind the last one."""
        return self._columns[0]

    @property
    def state_rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        """[size] and [size]: rows of the store that are read and written; rows that fill up have those of nobody."""
        return self._columns[1], self._columns[2]

    def fill(self, *columns: I32) -> None:
        """Takes the columns `[R]` of as many rows: slots and, where the model keeps states, rows of the store. Waits
        for nothing."""
        padded = np.tile(self._padding[:, None], self._columns.shape[1])
        padded[:, : len(columns[0])] = columns
        self._columns.copy_(upload([padded], self._columns.device)[0])


class DecodeStep:
    """A decode step of `size` rows that reads all it needs from `state`, on the device."""

    def __init__(
        self,
        module: Any,
        cache: KVCache,
        state: DecodeState,
        of_layers: tuple[int, ...],
        size: int,
        num_splits: int,
        store: StateStore | None = None,
    ) -> None:
        """of_layers: `[layers]` number of each layer's group; empty: all are the spine's. store: of recurrent states;
        None: the model has none."""
        self._forward, self._cache, self._state = ModuleForward(module), cache, state
        self._of_layers, self._num_splits, self._store = of_layers, num_splits, store
        self._items = make_decode_items(size, num_splits, state.device)
        self.inputs = StepInputs(state, store, size)

    def run(self) -> Results:
        """Writes the KV and the states of the rows' tokens. Returns the logits `[size, V]`, and whether the hidden
        states are finite `[size]`. Copies nothing from or to the host."""
        slots, store = self.inputs.slots, self._store
        tokens, positions = self._state.tokens[slots], self._state.positions[slots]
        batch = DecodeBatch(
            self._cache,
            positions,
            self._state.block_tables[:, slots],
            of_layers=self._of_layers,
            states=None if store is None else DecodeStates(store, *self.inputs.state_rows),
            items=self._items,
            num_splits=self._num_splits,
        )
        with attention.running(batch):
            forwarded = self._forward.all(tokens, positions.to(torch.int64))
        return forwarded.logits, state_sums(forwarded.states).isfinite()


class CapturedStep:
    """A `DecodeStep` as a graph: one launch for all kernels."""

    def __init__(self, step: DecodeStep, capture: Capture, into: Results | None = None) -> None:
        """into: results of a larger captured step, where these are written too; None: it keeps results of its own."""
        self._step = step  # owns tensors that each replay reads
        self._replay, self.results = capture(step.run if into is None else lambda: copied(step.run(), into))

    @property
    def inputs(self) -> StepInputs:
        """What the host tells the step."""
        return self._step.inputs

    @property
    def launched(self) -> DecodeStep:
        """Its step without the graph."""
        return self._step

    def run(self) -> Results:
        """Runs the step as `DecodeStep.run` does; the next run of any size overwrites the results."""
        self._replay()
        return self.results


def copied(results: Results, into: Results) -> Results:
    """Copies results of as many rows as they have to the first rows of others; returns those rows."""
    rows = tuple(whole[: len(part)] for part, whole in zip(results, into, strict=True))
    for part, row in zip(results, rows, strict=True):
        row.copy_(part)
    return rows


class DecodeSteps:
    """The decode steps of all batch sizes, captured as graphs or not."""

    def __init__(
        self,
        module: Any,
        cache: KVCache,
        state: DecodeState,
        of_layers: tuple[int, ...],
        sizes: tuple[int, ...],
        num_splits: int,
        store: StateStore | None = None,
    ) -> None:
        self.sizes = sizes
        self._steps: dict[int, DecodeStep | CapturedStep] = {
            size: DecodeStep(module, cache, state, of_layers, size, num_splits, store) for size in sizes
        }
        self.failures = {(what, reason): 0 for what in (CAPTURE, REPLAY) for reason in Reason}
        """How often a graph could not be captured, or replayed, by reason."""

    def for_rows(self, count: int) -> DecodeStep | CapturedStep | None:
        """The smallest that holds `count` rows; None if that are too many."""
        size = bucket_for(count, self.sizes)
        return None if size is None else self._steps[size]

    @property
    def num_captured(self) -> int:
        """How many of the steps are graphs."""
        return sum(isinstance(step, CapturedStep) for step in self._steps.values())

    def run(self, step: DecodeStep | CapturedStep) -> Results:
        """Runs a step that `for_rows` gave. A graph that cannot be replayed is dropped, counted and logged: the
        next run of the step launches its kernels one by one (O7). Raises what the replay, or the step, raises."""
        try:
            return step.run()
        except Exception as error:
            if isinstance(step, CapturedStep):
                self._give_up(step, error)
            raise

    def capture(self, capture: Capture) -> None:
        """Captures all, the largest first, so that the others find its memory; they never run at the same time.

        All write their results where the largest does: logits of each size would take as much as 800 MB.

        Without a graph a step runs all the same, launch by launch. A size for whose graph there is no memory, or no
        resources of the device, costs that graph alone; where a step waits for the device no size has a graph. Failures
        are counted, and logged once.
        """
        failure = ""
        largest: Results | None = None
        for size in sorted(self.sizes, reverse=True):
            step = self._steps[size]
            assert isinstance(step, DecodeStep)
            try:
                captured = self._steps[size] = CapturedStep(step, capture, largest)
                largest = captured.results if largest is None else largest
            except Exception as error:  # of CUDA, of Triton, or of a model's code
                # Not the error itself: its traceback holds tensors whose memory the next size may need.
                failure, reason = failure or text_of(error), reason_of(error)
                self.failures[CAPTURE, reason] += 1
                if reason not in SCARCE:
                    break
        if failure:
            without = [size for size, step in self._steps.items() if isinstance(step, DecodeStep)]
            logger.warning(
                "Decode steps of %s rows run without CUDA graphs, which is slower: %s",
                ", ".join(map(str, without)),
                failure,
            )

    def _give_up(self, captured: CapturedStep, error: Exception) -> None:
        self.failures[REPLAY, reason_of(error)] += 1
        size = next(size for size, step in self._steps.items() if step is captured)
        self._steps[size] = captured.launched
        logger.warning(
            "The CUDA graph of %d rows is given up, as it could not be replayed: %s", size, text_of(error)
        )
