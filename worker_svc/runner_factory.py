"""Makes the runner that the settings ask for."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from signalbox.errors import StartupError
from signalbox.protocol.model_identity import ModelIdentity
from signalbox.protocol.speculation import parse_speculation
from signalbox.runtime.cores import spin_count, tell_threads
from signalbox.runtime.process import collector_off
from worker_svc.config import WorkerSettings
from worker_svc.core.batch import DEFAULT_SLOTS, ModelRunner, RunnerInfo
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.core.drafts.ngram import NgramDrafter
from worker_svc.ranks.place import place_of
from worker_svc.runner.sim.failures import SimFailures
from worker_svc.runner.sim.model import SimDrafter, SimRunner, SimTiming

if TYPE_CHECKING:
    from worker_svc.ranks.runners import FollowingRunner
    from worker_svc.runner.draft_model import LoadedDraft
    from worker_svc.runner.split.split import Split
    from worker_svc.runner.torch_runner import TorchRunner

logger = logging.getLogger(__name__)
SIM_ACCEPTANCE = 0.7
"""Share of the simulated model's draft tokens that are right: near what drafts reach on text."""
SIM_NUM_BLOCKS = 4096
SIM_MAX_MODEL_LEN = 4096
MAX_BLOCKS_PER_REQUEST = 1 << 16
"""Reports number the blocks of a request in 16 bits (`ModelRunnerOutput.sealed_indexes`)."""


def make_runner(settings: WorkerSettings) -> tuple[ModelRunner, Drafter | None]:
    """Loads the model. Takes seconds to minutes. Raises StartupError with a sentence that names the culprit."""
    runner, drafter = _sim(settings) if settings.runner == "sim" else _torch(settings)
    _check_geometry(runner.info)
    return runner, drafter


def _check_geometry(info: RunnerInfo) -> None:
    num_blocks = -(-info.max_model_len // info.block_size)
    if num_blocks > MAX_BLOCKS_PER_REQUEST:
        raise StartupError(
            f"a request of {info.max_model_len} tokens takes {num_blocks} blocks, but at most"
            f" {MAX_BLOCKS_PER_REQUEST} can be numbered: raise --block-size or lower --max-model-len"
        )


def _sim(settings: WorkerSettings) -> tuple[ModelRunner, Drafter | None]:
    tokenizer = settings.model / "tokenizer.json" if settings.model else None
    known = tokenizer is not None and tokenizer.exists()
    info = RunnerInfo(
        model=settings.served_model_name or (settings.model.name if settings.model else "sim"),
        num_blocks=settings.num_blocks or SIM_NUM_BLOCKS,
        block_size=settings.block_size,
        max_model_len=settings.max_model_len or SIM_MAX_MODEL_LEN,
        vocab_size=settings.sim_vocab_size,
        eos_token_ids=(),
        max_draft_tokens=settings.sim_max_draft_tokens,
        num_host_blocks=settings.num_host_blocks,
        num_slots=settings.num_slots or DEFAULT_SLOTS,
        has_logprobs=False,
        tokenizer_fingerprint=hashlib.sha256(tokenizer.read_bytes()).hexdigest()
        if tokenizer and known
        else "",
        identity=ModelIdentity(settings.sim_weights),
    )
    timing = SimTiming(settings.sim_base_ms, settings.sim_token_ms, settings.sim_copy_ms_per_block)
    drafter = SimDrafter(info.vocab_size, SIM_ACCEPTANCE, info.identity) if info.max_draft_tokens else None
    failures = SimFailures(
        fail_token=settings.sim_fail_token,
        fail_step=settings.sim_fail_step,
        break_step=settings.sim_break_step,
        hang_token=settings.sim_hang_token,
        hang_ms=settings.sim_hang_ms or 0.0,
        nan_token=settings.sim_nan_token,
        crash_token=settings.sim_crash_token,
    )
    used = failures if failures != SimFailures() else None
    return SimRunner(info, timing, used, shared=settings.hand_off and hasattr(os, "memfd_create")), drafter


def _torch(settings: WorkerSettings) -> tuple[ModelRunner, Drafter | None]:
    if settings.model is None:
        raise StartupError("--model is missing: the torch runner needs the directory of a model")
    # Read when OpenMP is loaded, with torch: threads that spin between two steps starve the event loops.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", spin_count())
    # Imported here: the sim runner does without torch, and importing it takes seconds.
    with collector_off():
        from worker_svc.runner.encoder.loading import is_encoder  # noqa: PLC0415
        from worker_svc.runner.errors import ModelLoadError  # noqa: PLC0415
        from worker_svc.runner.torch_runner import TorchRunner  # noqa: PLC0415

    try:
        if is_encoder(settings.model):
            if settings.num_ranks > 1:
                flag = "--tensor-parallel" if settings.tensor_parallel > 1 else "--pipeline-parallel"
                raise StartupError(f"{flag} is for models that generate, and this is an encoder")
            return _encoder(settings), None
    except ModelLoadError as error:
        raise StartupError(str(error)) from None

    if settings.num_ranks > 1:
        return _leading(settings)
    runner_class: Callable[..., TorchRunner] = TorchRunner
    if settings.device == "cuda" or settings.attention == "triton":
        from worker_svc.runner.cuda.runner import CudaRunner  # noqa: PLC0415

        runner_class = partial(CudaRunner, attention=settings.kernels)
    runner, drafter = _made_by(runner_class, settings)
    if settings.device == "cuda":
        _warm_up(runner, drafter, settings)
    return runner, drafter


def _warm_up(runner: TorchRunner, drafter: Drafter | None, settings: WorkerSettings) -> None:
    """Compiles what steps on a GPU will need, if Triton is there."""
    from worker_svc.runner.cuda.runner import CudaRunner  # noqa: PLC0415
    from worker_svc.runner.errors import ModelLoadError  # noqa: PLC0415

    assert isinstance(runner, CudaRunner), "it was made by that class"
    if not runner.decode_sizes:
        return
    from worker_svc.runner.warming.warm_up import warm_up  # noqa: PLC0415

    try:
        warm_up(runner, drafter, settings.max_num_batched_tokens)
    except ModelLoadError as error:
        raise StartupError(str(error)) from None


def _leading(settings: WorkerSettings) -> tuple[ModelRunner, Drafter | None]:
    """The runner of rank 0, with the other ranks behind it."""
    from worker_svc.ranks.errors import GroupBrokenError  # noqa: PLC0415
    from worker_svc.ranks.pipeline import PipelineRunner  # noqa: PLC0415
    from worker_svc.ranks.runners import LeadingRunner  # noqa: PLC0415
    from worker_svc.ranks.starting import starting_group  # noqa: PLC0415

    if settings.device == "cuda":
        logger.warning("%d GPUs: untested, as no machine with several has run this", settings.num_ranks)
    own = settings.model_copy(update={"threads": _threads_of_rank(settings)})
    leader = None
    try:
        with starting_group(own) as (leader, split):
            runner_class = LeadingRunner if split.num_stages == 1 else PipelineRunner
            return _made_by(
                partial(runner_class, leader=leader, split=split, attention=settings.kernels),
                own,
                device=split.device,
            )
    except (GroupBrokenError, StartupError, RuntimeError) as error:
        # Perhaps of a collective that another rank has left.
        failure = None if leader is None else leader.failure
        raise StartupError(str(failure or error)) from error


def make_following_runner(settings: WorkerSettings, split: Split) -> FollowingRunner:
    """The runner of a rank but the first. Raises StartupError as `make_runner` does."""
    from worker_svc.ranks.pipeline import FollowingStage  # noqa: PLC0415
    from worker_svc.ranks.runners import FollowingRunner  # noqa: PLC0415

    runner_class = FollowingRunner if split.num_stages == 1 else FollowingStage
    runner, _ = _made_by(
        partial(runner_class, split=split, attention=settings.kernels),
        settings,
        has_drafter=False,
        device=split.device,
    )
    assert isinstance(runner, FollowingRunner), "it was made by that class"
    return runner


def _threads_of_rank(settings: WorkerSettings) -> int:
    """Threads of each rank: those of the machine are divided among the ranks that are started here."""
    place = place_of(os.environ, settings.num_ranks)
    num_here = settings.num_ranks if place is None else place.num_here
    return settings.threads or max(1, tell_threads(None) // num_here)


def _made_by(
    runner_class: Callable[..., TorchRunner],
    settings: WorkerSettings,
    *,
    has_drafter: bool = True,
    device: str | None = None,
) -> tuple[TorchRunner, Drafter | None]:
    """The runner as settings want it, and what makes its drafts: where it `has_drafter`, and drafts were asked for.
    device: None: what settings say."""
    from worker_svc.runner.errors import ModelLoadError  # noqa: PLC0415
    from worker_svc.runner.model.kept_weights import Quantization  # noqa: PLC0415

    speculation = parse_speculation(settings.speculative) if settings.speculative else None
    has_draft_model = speculation is not None and speculation.method == "draft" and has_drafter
    assert settings.model is not None
    try:
        draft = _load_draft(settings) if has_draft_model else None
        runner = runner_class(
            settings.model,
            served_model_name=settings.served_model_name or settings.model.name,
            dtype=settings.dtype,
            quantization=Quantization(settings.quantization),
            device=device or settings.device,
            num_blocks=settings.num_blocks,
            num_host_blocks=settings.num_host_blocks,
            block_size=settings.block_size,
            max_model_len=settings.max_model_len,
            threads=tell_threads(settings.threads),
            kv_cache_memory=settings.kv_cache_memory,
            gpu_memory_utilization=settings.gpu_memory_utilization,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            draft_block_bytes=draft.block_bytes if draft else 0,
            num_slots=settings.num_slots,
            mean_request_tokens=settings.mean_request_tokens,
            num_checkpoints=settings.num_checkpoints,
            max_draft_tokens=speculation.num_drafts if speculation else 0,
            shares_blocks=settings.hand_off and settings.num_ranks == 1,
        )
    except ModelLoadError as error:
        raise StartupError(str(error)) from None
    states = runner.info.state_group
    if states is not None and settings.checkpoints_of_prompts_only:
        runner.info = replace(runner.info, state_group=replace(states, prompts_only=True))
    if speculation is None:
        return runner, None
    runner.info = replace(runner.info, max_draft_tokens=speculation.num_drafts)
    if not has_drafter:
        return runner, None
    if draft is None:
        return runner, NgramDrafter(settings.ngram_min, settings.ngram_max)
    return runner, draft.on(runner)


def _encoder(settings: WorkerSettings) -> ModelRunner:
    # Imported here as torch's runner is.
    from worker_svc.runner.encoder.runner import EncoderRunner  # noqa: PLC0415
    from worker_svc.runner.model.kept_weights import ROUNDED_BITS  # noqa: PLC0415

    assert settings.model is not None
    if settings.speculative is not None:
        raise StartupError("--speculative is for models that generate, and this is an encoder")
    if settings.quantization in ROUNDED_BITS:
        raise StartupError(f"--quantization {settings.quantization} is not served for encoders")
    runner = EncoderRunner(
        settings.model,
        served_model_name=settings.served_model_name or settings.model.name,
        dtype=settings.dtype,
        device=settings.device,
        num_blocks=settings.num_blocks,
        block_size=settings.block_size,
        max_model_len=settings.max_model_len,
        threads=tell_threads(settings.threads),
        max_num_batched_tokens=settings.max_num_batched_tokens,
    )
    runner.info = replace(runner.info, num_slots=settings.num_slots or DEFAULT_SLOTS)
    return runner


def _load_draft(settings: WorkerSettings) -> LoadedDraft:
    # Imported here as torch's runner is.
    from worker_svc.runner.draft_model import load_draft  # noqa: PLC0415

    assert settings.model is not None
    return load_draft(
        settings.draft_model or settings.model / "draft",
        settings.model,
        dtype=settings.dtype,
        device=settings.device,
        block_size=settings.block_size,
    )
