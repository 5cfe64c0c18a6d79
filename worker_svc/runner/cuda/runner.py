"""The torch runner for a GPU: state of the slots on the device, decode steps as graphs, sampling without a wait.

A step is launched and collected apart, so that the next one can be launched before the tokens of this one are on the
host. On the CPU the same code runs without graphs, for tests.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from worker_svc.core.batch import DEFAULT_SLOTS, Batch, BlockCopy, Sampled, StateCopy, WarmUp
from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.core.run_ahead import is_plain
from worker_svc.core.steps_in_flight import MOST_IN_FLIGHT
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.attention import PagedBatch
from worker_svc.runner.cpu.direct_forward import ModuleForward
from worker_svc.runner.cuda.buckets import LARGEST_BUCKET, bucket_sizes
from worker_svc.runner.cuda.captures import Capture, CountedCapture, CudaCapture
from worker_svc.runner.cuda.copies.blocks import DeviceBlocks
from worker_svc.runner.cuda.copies.order import Order, order_for
from worker_svc.runner.cuda.copies.pinned import WANTED
from worker_svc.runner.cuda.copies.rows import move_by_kernel, move_by_torch
from worker_svc.runner.cuda.faults import Reason, text_of
from worker_svc.runner.cuda.loading import load_for_gpu
from worker_svc.runner.cuda.sampler import heaviest_plan, plan_sampling, sample_on_device
from worker_svc.runner.cuda.state import DecodeRows, DecodeState, StateMirror
from worker_svc.runner.cuda.transfers import HostCopy, upload
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.cache_making import CacheMaker, one_block
from worker_svc.runner.model.kept_weights import Quantization
from worker_svc.runner.model.loading import LoadedModel
from worker_svc.runner.model.memory import graphs_bytes
from worker_svc.runner.model.memory_profile import StepUses, peak_bytes
from worker_svc.runner.progress import Progress
from worker_svc.runner.recurrent.drafted import rows_of
from worker_svc.runner.recurrent.rows import StateRows
from worker_svc.runner.sampling.finite import bad_rows, chosen_logits, state_sums
from worker_svc.runner.torch_runner import TorchRunner
from worker_svc.transfer.block_memory import LaidOut

logger = logging.getLogger(__name__)
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Launched:
    """A step on its way."""

    slots: NDArray[np.int32]
    """[N] slot of each sample."""
    positions: NDArray[np.int32]
    """[N] that the sampled tokens get."""
    sample_rows: NDArray[np.int32]
    """[N] row of each sample in the batch."""
    results: HostCopy | None
    """[N + R + N] tokens, then 1 for each row and for each sample that is finite, else 0."""
    done: Sampled | None = None
    """The result, where the step could not be launched without waiting for it."""

    @property
    def is_done(self) -> bool:
        """The tokens are on the host."""
        return self.results is None or self.results.is_done


class CudaRunner(TorchRunner):
    """A `ModelRunner` that can also be a step ahead; see `launch`. One thread calls it."""

    _num_scratch_blocks = 1
    """Where rows write that only fill up a graph's size."""
    _most_in_flight = MOST_IN_FLIGHT

    def __init__(
        self,
        model_dir: str | os.PathLike[str],
        *,
        attention: str = "auto",
        capture: Capture | None = None,
        order: Order | None = None,
        **settings: Any,
    ) -> None:
        """As `TorchRunner`, whose other settings it takes.

        attention: auto, any or triton, as for `load_for_gpu`. capture: of decode steps on Triton's kernels; None: CUDA
        graphs on a GPU, none elsewhere. order: in which its device works; None: as streams of a GPU, or as a CPU does.
        """
        self._attention, self._capture, self._order = attention, capture, order
        super().__init__(model_dir, **settings)
        self.warm_up = WarmUp()
        num_slots = self.info.num_slots
        columns = -(-self.info.max_model_len // self.info.block_size)
        self._mirror = StateMirror(num_slots, columns, self.info.num_blocks, self._layout.groups)
        self._state = DecodeState(num_slots, columns, self._mirror.scratch_blocks, self.model.device)
        self._in_flight: deque[Launched] = deque()
        self._module_forward = ModuleForward(self.model.module)
        self._steps: Any = self._make_steps(bucket_sizes(min(LARGEST_BUCKET, num_slots)))

    def _load(
        self,
        path: Path,
        dtype: str,
        quantization: Quantization,
        device: str,
        block_size: int,
        max_model_len: int | None,
    ) -> LoadedModel:
        model, self._batch_class = load_for_gpu(
            path,
            self._attention,
            dtype=dtype,
            device=device,
            quantization=quantization,
            block_size=block_size,
            max_model_len=max_model_len,
        )
        return model

    def _take_cache(
        self, maker: CacheMaker, block_size: int, num_host_blocks: int, *, has_groups: bool, is_shared: bool
    ) -> LaidOut | None:
        super()._take_cache(maker, block_size, num_host_blocks, has_groups=has_groups, is_shared=is_shared)
        self.records: DeviceBlocks | None = None
        """What takes its blocks to the host and back; None: nobody asked for that."""
        if not (is_shared or num_host_blocks):
            return None
        move = move_by_torch if self._batch_class is PagedBatch else move_by_kernel
        order = self._order or order_for(self.model.device)
        try:
            self.records = DeviceBlocks(self._cache, self._layout, self._states, order, move)
        except RuntimeError as error:
            raise ModelLoadError(f"{WANTED}: {error}.") from error
        return self.records if is_shared else None

    def _step_uses(self, num_slots: int | None, block_size: int, max_model_len: int | None) -> StepUses:
        if self._batch_class is PagedBatch:
            return StepUses()
        longest = max_model_len or self.model.max_position_embeddings

        def sample(logits: torch.Tensor) -> torch.Tensor:
            count = num_slots or DEFAULT_SLOTS
            logits = logits[:count] if len(logits) >= count else logits.new_zeros((count, logits.shape[1]))
            return sample_on_device(logits, heaviest_plan(len(logits), logits.shape[1], logits.device))

        def graphs() -> int:
            sizes = bucket_sizes(min(LARGEST_BUCKET, num_slots or DEFAULT_SLOTS))
            step = self._lone_step(sizes[-1], block_size, longest)
            peak = peak_bytes(self.model.device, step.run)
            return (
                graphs_bytes(peak, len(sizes)) + peak
            )  # in the graphs' pool, and in a step with chunks outside it

        return StepUses(sample, graphs)

    def _lone_step(self, size: int, block_size: int, longest: int) -> Any:
        """A decode step of `size` rows that all lie in one block of their own, ahead of the cache: to be measured."""
        from worker_svc.runner.cuda.graphs import DecodeStep  # noqa: PLC0415
        from worker_svc.runner.triton.attention import SPLIT  # noqa: PLC0415

        cache = one_block(self.model, block_size)
        state = DecodeState(size, -(-longest // block_size), (0,), self.model.device)
        return DecodeStep(self.model.module, cache, state, (), size, -(-longest // SPLIT), self._states)

    def _make_steps(self, sizes: tuple[int, ...]) -> Any:
        """The decode steps that run on the device's state alone; None without Triton."""
        if self._batch_class is PagedBatch:
            return None
        from worker_svc.runner.cuda.graphs import DecodeSteps  # noqa: PLC0415
        from worker_svc.runner.triton.attention import SPLIT  # noqa: PLC0415

        num_splits = -(-self.info.max_model_len // SPLIT)
        steps = DecodeSteps(
            self.model.module, self._cache, self._state, self._of_layers, sizes, num_splits, self._states
        )
        capture = self._capture or (CudaCapture() if self.model.device.type == "cuda" else None)
        if capture is not None:
            progress = Progress("CUDA graphs", len(sizes))
            with torch.inference_mode():
                steps.capture(CountedCapture(capture, progress))
            self.warm_up.seconds += progress.seconds
            self._check_after(steps.failures)
        return steps

    def _check_after(self, failures: dict[tuple[str, Reason], int]) -> None:
        """ModelLoadError where a failed capture has left a device on which nothing runs (U5)."""
        if not any(failures.values()):
            return
        try:
            self.check()
        except Exception as error:
            raise ModelLoadError(
                f"The device computes nothing any more since a CUDA graph could not be captured: {text_of(error)}"
            ) from None

    def execute(self, batch: Batch) -> Sampled:
        """Writes the KV of all query tokens and samples; see `ModelRunner`."""
        return self.collect(self.launch(batch))

    @torch.inference_mode()
    def launch(self, batch: Batch, in_flight: Mask | None = None) -> Launched:
        """Starts a step. Steps are collected in the order of their launch.

        `in_flight` `[R]` are the decode rows whose query token an uncollected step samples: `batch.token_ids` does
        not matter there. ValueError if the step needs them on the host, or if no such step was launched.
        """
        ahead = np.zeros(len(batch.slots), np.bool_) if in_flight is None else in_flight
        is_in_turn = not len(batch.token_ids) or not is_plain(batch)
        if is_in_turn and ahead.any():
            raise ValueError("a row that needs tokens on the host was launched ahead of them")
        try:
            return self._launched(self._run_now(batch) if is_in_turn else self._launch(batch, ahead))
        except Exception:
            self._mirror.forget()
            self._note()  # some of its kernels may be running
            raise

    def _run_now(self, batch: Batch) -> Launched:
        none = np.empty(0, np.int32)
        return Launched(none, none, none, None, done=super().execute(batch))

    def collect(self, launched: Launched) -> Sampled:
        """Waits for the tokens of the oldest launched step."""
        assert self._in_flight and self._in_flight[0] is launched, "steps are collected in order"
        self._in_flight.popleft()
        if launched.results is None:
            assert launched.done is not None
            return launched.done
        try:
            results = launched.results.wait()
        except Exception:
            self._mirror.forget()  # what the device has of its columns is not known
            self._note()
            raise
        count = len(launched.slots)
        tokens, finite = results[:count], results[count:] != 0
        self._mirror.collected(launched.slots, launched.positions, tokens)
        states, choices = np.split(finite, [len(finite) - count])
        return Sampled(token_ids=tokens, bad_rows=bad_rows(states, choices, launched.sample_rows))

    def copy_blocks(self, copies: list[BlockCopy]) -> None:
        """Copies blocks and checkpoints; see `ModelRunner`. Waits for nothing."""
        if self.records is None:
            super().copy_blocks(copies)
        else:
            self.records.copier.copy(copies)

    def copies_aside(self, copies: list[BlockCopy]) -> Callable[[], None]:
        """Returns a callable that makes the copies on a stream of their own; see `ModelRunner`."""
        assert self.records is not None, "there is a host tier"
        return self.records.copier.copies_aside(copies)

    def copy_states(self, copies: list[StateCopy]) -> None:
        """Copies recurrent states; see `ModelRunner`. Waits for nothing."""
        super().copy_states(copies)
        self._note()

    def read_state(self, slot: int, version: int, num_drafts: int) -> bytes:
        """The bytes of a slot's recurrent state; see `HandoffRunner`."""
        assert self.records is not None, "it says a layout"
        return self.records.read_state(slot, version, num_drafts)

    def write_state(self, slot: int, version: int, num_drafts: int, content: bytes) -> None:
        """Puts back what `read_state` gave; see `HandoffRunner`."""
        assert self.records is not None, "it says a layout"
        self.records.write_state(slot, version, num_drafts, content)

    def _note(self) -> None:
        """Something was given to the device whose end no step's results tell (TR14)."""
        if self.records is not None:
            self.records.copier.note()

    @property
    def decode_sizes(self) -> tuple[int, ...]:
        """Rows of the decode steps that run on the device's state alone, ascending; empty: without Triton."""
        return () if self._steps is None else self._steps.sizes

    @property
    def scratch_blocks(self) -> tuple[int, ...]:
        """[G] a block of the spine and of each other group that no request has."""
        return self._mirror.scratch_blocks

    def forget(self) -> None:
        """The next step sends the device all that it reads of its slots."""
        self._mirror.forget()

    @property
    def num_graphs(self) -> int:
        """Decode steps that run as CUDA graphs."""
        return 0 if self._steps is None else self._steps.num_captured

    @property
    def graph_failures(self) -> dict[tuple[str, str], int]:
        """Counts of failed graphs, by what failed and the reason; empty without graphs. Any thread may ask."""
        return {} if self._steps is None else dict(self._steps.failures)

    def _launched(self, launched: Launched) -> Launched:
        self._in_flight.append(launched)
        return launched

    def _launch(self, batch: Batch, ahead: Mask) -> Launched:
        self._threads.apply(1)
        num_decode = batch.num_decode_rows
        firsts = batch.query_starts[:num_decode]
        self._state.apply(
            self._mirror.update_for(
                DecodeRows(
                    slots=batch.slots[:num_decode],
                    tokens=batch.token_ids[firsts],
                    positions=batch.positions[firsts],
                    block_tables=[
                        tables[:num_decode] for tables in (batch.block_tables, *batch.group_tables)
                    ],
                    in_flight=ahead[:num_decode],
                ),
                self.info.block_size,
            )
        )
        slots, positions = batch.slots[batch.sample_rows], batch.seq_lens[batch.sample_rows]
        step = self._steps.for_rows(num_decode) if self._steps and goes_on(batch) else None
        logits, states = (
            self._run_ahead_of_host(batch, ahead) if step is None else self._run_step(step, batch)
        )
        if not len(slots):
            return Launched(slots, positions, batch.sample_rows, HostCopy(states.long()))
        plan = plan_sampling(batch, self.model.vocab_size, self.model.device)
        tokens = sample_on_device(logits[: len(slots)], plan)
        self._state.take(*self._targets(step, slots, positions), tokens)
        self._mirror.launched(slots, positions)
        choices = chosen_logits(logits[: len(slots)], tokens) < torch.inf
        results = HostCopy(torch.cat((tokens, states[: len(batch.slots)].long(), choices.long())))
        return Launched(slots, positions, batch.sample_rows, results)

    def _run_step(self, step: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits `[bucket, V]` of decode rows whose columns the device has, and whether their hidden states are
        finite."""
        store, slots = self._states, batch.slots
        if store is None:
            step.inputs.fill(slots)
            return self._steps.run(step)  # type: ignore[no-any-return]
        step.inputs.fill(
            slots, store.rows_of(slots, batch.state_reads), store.rows_of(slots, batch.state_writes)
        )
        results: tuple[torch.Tensor, torch.Tensor] = self._steps.run(step)
        if batch.state_keeps:
            rows = rows_of(store, batch)
            assert isinstance(rows, StateRows), "rows have no tails"
            for stored in store.layers.values():
                rows.keep_ends(stored)
        return results

    def _run_ahead_of_host(self, batch: Batch, ahead: Mask) -> tuple[torch.Tensor, torch.Tensor]:
        """As `_run_step`, `[N, V]` and `[R]`, for any step; from the host's columns, but
        for tokens that only the device knows."""
        paged = self._batch_class.of(
            batch,
            self._cache,
            of_layers=self._of_layers,
            device=self.model.device,
            states=rows_of(self._states, batch),
        )
        rows = np.flatnonzero(ahead)
        columns = [
            batch.token_ids,
            batch.positions,
            batch.sample_index,
            batch.query_starts[1:] - 1,
            batch.query_starts[rows],
            batch.slots[rows],
        ]
        tokens, positions, samples, lasts, places, slots = upload(
            [column.astype(np.int64) for column in columns], self.model.device
        )
        if len(rows):
            tokens[places] = self._state.tokens[slots]
        with attention.running(paged):
            forwarded = self._module_forward(tokens, positions, samples, lasts)
        return forwarded.logits, state_sums(forwarded.states).isfinite()

    def _targets(self, step: Any, slots: Any, positions: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Slots and positions of the sampled tokens on the device; decode steps have them there."""
        if step is None:
            slots, positions = upload([slots.astype(np.int64), positions], self.model.device)
            return slots, positions
        there = step.inputs.slots[: len(slots)]
        return there, self._state.positions[there] + 1


def goes_on(batch: Batch) -> bool:
    """Whether all rows decode one token each, and go on from where the device left them: no right drafts are to be run
    again in recurrent layers."""
    is_decoding = batch.num_decode_rows == len(batch.slots)
    return is_decoding and not batch.state_tails.any() and not (batch.state_reads == NOTHING).any()
