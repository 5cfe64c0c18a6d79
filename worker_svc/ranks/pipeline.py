"""The runners of a model whose layers are at several stages (RK12 to RK15): a batch passes through them one after the
other, and as many are on their way as there are stages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from signalbox.v1 import ranks_pb2
from worker_svc.core.batch import Batch, Sampled
from worker_svc.ranks.leader import Begun
from worker_svc.ranks.runners import FollowingRunner, LeadingRunner, RankRunner, digest_of
from worker_svc.ranks.states import GroupStates
from worker_svc.runner.cpu.direct_forward import Forwarded
from worker_svc.runner.model.head import CapturedStates
from worker_svc.runner.sampling.prompt_results import score_prompts
from worker_svc.runner.split.links import StageLink
from worker_svc.runner.split.stage import Stage
from worker_svc.runner.split.stage_forward import StageForward
from worker_svc.runner.torch_runner import sample_and_read, sample_checked

I32 = NDArray[np.int32]


class StageRunner(RankRunner):
    """The layers of one stage."""

    _stage_forward: StageForward | None = None

    @property
    def stage(self) -> Stage:
        """Its place in the pipeline."""
        assert self._split is not None and self._split.stage is not None, "it is one of several stages"
        return self._split.stage

    @property
    def link(self) -> StageLink:
        """To the stages before and behind."""
        assert self._split is not None and self._split.link is not None, "it is one of several stages"
        return self._split.link

    @torch.inference_mode()
    def run_stage(self, batch: Batch) -> torch.Tensor:
        """Our part of a batch: what the stage before has sent, if there is one, goes through our layers and on to the
        next. Returns the states `[T, H]`. Where we fail, the stages behind hear of it in their place (RK14)."""
        shape = (len(batch.token_ids), int(self.model.module.config.hidden_size))
        size = shape[0] * shape[1] * self.model.dtype.itemsize
        try:
            received = None if self.stage.is_first else self.link.receive(shape, self.model.dtype)
            states = self._through(batch, received)
        except Exception:
            self.link.send(None, size)
            raise
        self.link.send(states, size)
        return states

    def _through(self, batch: Batch, received: torch.Tensor | None) -> torch.Tensor:
        if self._stage_forward is None:
            self._stage_forward = StageForward(
                self.model, self.info.max_model_len, reads_tokens=self.stage.reads_tokens
            )
        with self._running(batch):
            states = self._stage_forward(
                self._to_device(batch.token_ids), self._to_device(batch.positions), received
            )
        if self.ranks.size > 1:
            self.digest = digest_of(states[self._to_device(wanted_of(batch))])
        return states


class FollowingStage(FollowingRunner, StageRunner):
    """A rank but the first, of a stage."""

    def follow(self, batch: Batch) -> bytes:
        """Our part of a batch. From the last stage, what rank 0 wants of the states: bytes of `[n, H]`."""
        states = self.run_stage(batch)
        if not self.stage.is_last or self.ranks.rank:
            return b""
        chosen = states[self._to_device(wanted_of(batch))].contiguous()
        content: bytes = chosen.view(torch.uint8).numpy().tobytes()
        return content


@dataclass(eq=False)
class PassingBatch:
    """A batch on its way through the stages; nothing is, without query tokens."""

    batch: Batch
    begun: Begun | None

    @property
    def is_done(self) -> bool:
        """All stages have said what they have done."""
        return self.begun is None or self.begun.is_over


class PipelineRunner(LeadingRunner, StageRunner):
    """The runner of rank 0: its layers are the first, and the head is here. An `AheadRunner`."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        """As for LeadingRunner."""
        super().__init__(*args, **settings)
        self.info = replace(self.info, num_lanes=self.stage.size)
        self._all_states = GroupStates(self._leader, self.states, self.ranks.size)

    @property
    def _parts(self) -> str:
        num_drafts = 0 if self.states is None else self.states.num_drafts
        return (
            f"{self.stage.size} x {self.ranks.size} ranks, the first has layers {self.stage.layers},"
            f" {num_drafts} drafts behind states"
        )

    def read_state(self, slot: int, version: int, num_drafts: int) -> bytes:
        """The bytes of a slot's recurrent state, at all stages."""
        own = partial(super().read_state, slot, version, num_drafts)
        return self._all_states.read(slot, version, num_drafts, own)

    def write_state(self, slot: int, version: int, num_drafts: int, content: bytes) -> None:
        """Has each stage take its part of what `read_state` gave."""
        own = partial(StageRunner.write_state, self, slot, version, num_drafts)
        self._all_states.write(slot, version, num_drafts, content, own)

    def launch(self, batch: Batch, in_flight: NDArray[np.bool_]) -> PassingBatch:
        """Begins with a batch at all stages, and computes ours. What fails shows when it is collected."""
        assert not in_flight.any(), "a row is in two batches"
        if not len(batch.token_ids):
            return PassingBatch(batch, None)
        if batch.masks is not None:
            batch.masks.start()
        call = ranks_pb2.RankCall(execute=self._codec.write_batch(batch))
        begun = self._leader.begin(call, lambda: self.run_stage(batch), lambda: self.digest)
        return PassingBatch(batch, begun)

    def collect(self, launched: PassingBatch) -> Sampled:
        """Waits until it has left the last stage, and samples. Raises what a stage has failed in; GroupBrokenError."""
        batch, begun = launched.batch, launched.begun
        if begun is None:
            return Sampled(token_ids=np.empty(0, np.int32))
        content = self._leader.finish(begun)[-self.ranks.size]
        return self._sample(batch, content)

    def execute(self, batch: Batch) -> Sampled:
        """Launches and collects: nothing else is on its way."""
        return self.collect(self.launch(batch, np.zeros(len(batch.slots), np.bool_)))

    @torch.inference_mode()
    def _sample(self, batch: Batch, content: bytes) -> Sampled:
        assert self._head is not None, "a model without one is not served by stages"
        hidden_size = int(self.model.module.config.hidden_size)
        states = torch.frombuffer(bytearray(content), dtype=self.model.dtype).view(-1, hidden_size)
        rows = _places(batch)
        with self._threads.around_step(len(batch.slots)):
            logits = self._head.logits_of(states[self._to_device(rows[batch.sample_index])])
        looked_at = states[self._to_device(rows[batch.query_starts[1:] - 1])]
        forwarded = Forwarded(logits, looked_at)
        if not (batch.scored or batch.pooled):
            return sample_checked(forwarded, batch)
        captured = CapturedStates.of(states)
        scores = score_prompts(self._head, captured, batch)
        return sample_and_read(forwarded, batch, self._head, captured, scores)


def wanted_of(batch: Batch) -> I32:
    """The query tokens whose states rank 0 wants, ascending: those that are sampled, and the last of each row; all
    where prompts are read."""
    if batch.scored or batch.pooled:
        return np.arange(len(batch.token_ids), dtype=np.int32)
    return np.union1d(batch.sample_index, batch.query_starts[1:] - 1).astype(np.int32)


def _places(batch: Batch) -> I32:
    """[T] where among the wanted states each query token's is."""
    places = np.zeros(len(batch.token_ids), np.int32)
    wanted = wanted_of(batch)
    places[wanted] = np.arange(len(wanted), dtype=np.int32)
    return places
