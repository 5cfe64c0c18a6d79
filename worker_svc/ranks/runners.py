"""The runner of a model that is divided among ranks: that of rank 0, which samples, and that of any other."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from signalbox.v1 import ranks_pb2
from worker_svc.core.batch import Batch, BlockCopy, RankTimes, Sampled, StateCopy
from worker_svc.ranks.blocks import GroupBlocks, GroupRecords
from worker_svc.ranks.calls import CallCodec, write_block_copies, write_state_copies
from worker_svc.ranks.errors import GroupBrokenError
from worker_svc.ranks.first_failure import FirstFailure
from worker_svc.ranks.leader import Leader
from worker_svc.runner.cpu.direct_forward import Forwarded
from worker_svc.runner.cuda.loading import load_for_gpu
from worker_svc.runner.model.kept_weights import Quantization
from worker_svc.runner.model.loading import LoadedModel
from worker_svc.runner.recurrent.state_bytes import layout_of
from worker_svc.runner.recurrent.store import StateStore
from worker_svc.runner.sampling.prompt_results import follow_scores, score_prompts
from worker_svc.runner.split.communicator import Communicator
from worker_svc.runner.torch_runner import TorchRunner, sample_and_read, sample_checked
from worker_svc.transfer.block_memory import BlockMemory


class RankRunner(TorchRunner):
    """One rank's part."""

    _can_hand_over = False
    digest = 0
    """CRC-32 of the hidden states that the last batch gave; 0: there was none."""

    def __init__(
        self, model_dir: str | os.PathLike[str], *, attention: str = "auto", **settings: Any
    ) -> None:
        """attention: auto (Triton's kernels on a GPU, where Triton is installed) or triton. The rest is as for
        TorchRunner."""
        self._attention = attention
        super().__init__(model_dir, **settings)

    def _load(
        self,
        path: Path,
        dtype: str,
        quantization: Quantization,
        device: str,
        block_size: int,
        max_model_len: int | None,
    ) -> LoadedModel:
        if self._attention == "auto" and device == "cpu":
            return super()._load(path, dtype, quantization, device, block_size, max_model_len)
        model, self._batch_class = load_for_gpu(
            path,
            self._attention,
            dtype=dtype,
            device=device,
            quantization=quantization,
            block_size=block_size,
            max_model_len=max_model_len,
            split=self._split,
        )
        return model

    @property
    def likeness(self) -> str:
        """What all ranks have to have alike: else what they add up is wrong alike at all of them, and no digest shows
        it. Which modules are fused may differ."""
        identity = self.info.identity
        machine, _, _ = identity.number_class.partition(", modules ")
        return f"weights {identity.weights}, {self.model.dtype}, {machine}"

    @property
    def ranks(self) -> Communicator:
        """What it says to the others within a forward."""
        assert self._split is not None, "it has a part"
        return self._split.ranks

    @property
    def states(self) -> StateStore | None:
        """The recurrent states of its layers; None: no layer of the model keeps any."""
        return self._states

    def _run(self, batch: Batch) -> Forwarded:
        forwarded = super()._run(batch)
        self.digest = digest_of(forwarded.states)
        return forwarded


class FollowingRunner(RankRunner):
    """The runner of a rank but the first."""

    @torch.inference_mode()
    def follow(self, batch: Batch) -> bytes:
        """Our part of a batch, of which rank 0 samples. What is to be answered, if anything is."""
        if not batch.scored:
            self._run(batch)
            return b""
        assert self._head is not None, "requests that need it are refused"
        with self._head.capturing() as captured:
            self._run(batch)
        follow_scores(self._head, captured, batch)
        return b""


class LeadingRunner(RankRunner):
    """The runner of rank 0: what it is told to do, all ranks do."""

    def __init__(self, *args: Any, leader: Leader, **settings: Any) -> None:
        """leader: the group. What else there is as for TorchRunner. GroupBrokenError if a rank cannot load its part."""
        self._leader = leader
        super().__init__(*args, **settings)
        leader.wait_until_loaded(self.likeness)
        self._codec = CallCodec(self.info)
        own = self.block_memory
        if isinstance(own, BlockMemory):
            # Rank 0's layout says all of them, with how many they are: each has what the plan gives it.
            layout = f"{layout_of(own, self._states)} {self._parts}"
            self.info = replace(self.info, kv_layout=hashlib.sha256(layout.encode()).hexdigest())
            self.block_memory = GroupBlocks(leader, own)
        self.records = GroupRecords(leader, self.blocks)

    @property
    def _parts(self) -> str:
        """What each rank has of a block."""
        return str(self.ranks.size)

    @property
    def failure(self) -> GroupBrokenError | None:
        """Why the group has ended, also while nothing runs; None: it has not."""
        return self._leader.failure

    @property
    def pids(self) -> list[int]:
        """Processes of the other ranks, in order."""
        return self._leader.pids

    @property
    def log_bytes(self) -> int:
        """Bytes that the other ranks were told so far, by each for itself."""
        return self._leader.bytes_sent

    @property
    def rank_times(self) -> Sequence[RankTimes]:
        """Where the time of each rank went so far, by rank."""
        return self._leader.times

    def close(self) -> None:
        """Ends the other ranks."""
        self._leader.close()

    def execute(self, batch: Batch) -> Sampled:
        """Has all ranks run the batch, and samples here. What fails in sampling fails here alone: the group goes on
        (RK4)."""
        if not len(batch.token_ids):
            return super().execute(batch)
        if batch.masks is not None:
            batch.masks.start()  # ahead of the call: within it, the other ranks would wait for us if it failed
        call = ranks_pb2.RankCall(execute=self._codec.write_batch(batch))
        alone = FirstFailure()
        sampled = self._leader.run(call, lambda: self._execute(batch, alone), lambda: self.digest)
        alone.check()
        assert sampled is not None, "nothing has failed"
        return sampled

    @torch.inference_mode()
    def _execute(self, batch: Batch, alone: FirstFailure) -> Sampled | None:
        """All collectives of a batch, and its samples; None where `alone` has the failure of what is ours alone."""
        if not (batch.scored or batch.pooled):
            forwarded = self._run(batch)
            with alone:
                return sample_checked(forwarded, batch)
            return None
        assert self._head is not None, "requests that need it are refused"
        with self._head.capturing() as captured:
            forwarded = self._run(batch)
        scores = score_prompts(self._head, captured, batch, alone)
        with alone:
            return sample_and_read(forwarded, batch, self._head, captured, scores)
        return None

    def check(self) -> None:
        """Has all ranks run one token."""
        self._leader.run(ranks_pb2.RankCall(check=True), super().check)

    def copy_blocks(self, copies: list[BlockCopy]) -> None:
        """Has all ranks copy blocks."""
        call = ranks_pb2.RankCall(copy_blocks=write_block_copies(copies))
        self._leader.run(call, lambda: super(LeadingRunner, self).copy_blocks(copies))

    def copy_states(self, copies: list[StateCopy]) -> None:
        """Has all ranks copy recurrent states."""
        call = ranks_pb2.RankCall(copy_states=write_state_copies(copies))
        self._leader.run(call, lambda: super(LeadingRunner, self).copy_states(copies))

    def write_state(self, slot: int, version: int, num_drafts: int, content: bytes) -> None:
        """Has all ranks take a state, which each has as a whole (RK6)."""
        state = ranks_pb2.RankState(slot=slot, version=version, num_drafts=num_drafts, content=content)
        act = partial(super().write_state, slot, version, num_drafts, content)
        self._leader.run(ranks_pb2.RankCall(write_state=state), act)

    def copies_aside(self, copies: list[BlockCopy]) -> Callable[[], None]:
        """Has all ranks copy blocks, not beside other calls, but when it is their turn."""
        return lambda: self.copy_blocks(copies)


def digest_of(states: torch.Tensor) -> int:
    """CRC-32 of hidden states; never 0."""
    return zlib.crc32(states.contiguous().view(torch.uint8).cpu().numpy().data) or 1
