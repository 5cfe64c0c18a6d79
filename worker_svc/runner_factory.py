"""Makes the runner that the settings ask for."""

from __future__ import annotations

import hashlib
import os

from signalbox.errors import StartupError
from worker_svc.config import WorkerSettings
from worker_svc.core.batch import Drafter, ModelRunner, RunnerInfo
from worker_svc.runner.sim import SimDrafter, SimRunner, SimTiming

SIM_NUM_BLOCKS = 4096
SIM_MAX_MODEL_LEN = 4096


def make_runner(settings: WorkerSettings) -> tuple[ModelRunner, Drafter | None]:
    """Loads the model. Takes seconds to minutes. Raises StartupError with a sentence that names the culprit."""
    return _sim(settings) if settings.runner == "sim" else (_torch(settings), None)


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
        tokenizer_fingerprint=hashlib.sha256(tokenizer.read_bytes()).hexdigest()
        if tokenizer and known
        else "",
    )
    timing = SimTiming(settings.sim_base_ms, settings.sim_token_ms, settings.sim_context_ms)
    drafter = SimDrafter(info.vocab_size, settings.sim_acceptance) if info.max_draft_tokens else None
    return SimRunner(info, timing), drafter


def _torch(settings: WorkerSettings) -> ModelRunner:
    if settings.model is None:
        raise StartupError("--model is missing: the torch runner needs the directory of a model")
    # Read when OpenMP is loaded, with torch: threads that spin between two operations starve the event loops.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Imported here: the sim runner does without torch, and importing it takes seconds.
    from worker_svc.runner.errors import ModelLoadError  # noqa: PLC0415
    from worker_svc.runner.torch_runner import TorchRunner  # noqa: PLC0415

    try:
        return TorchRunner(
            settings.model,
            served_model_name=settings.served_model_name or settings.model.name,
            dtype=settings.dtype,
            device=settings.device,
            num_blocks=settings.num_blocks,
            num_host_blocks=settings.num_host_blocks,
            block_size=settings.block_size,
            max_model_len=settings.max_model_len,
            threads=settings.threads or max(1, (os.cpu_count() or 2) - 1),
            kv_cache_memory=settings.kv_cache_memory,
        )
    except ModelLoadError as error:
        raise StartupError(str(error)) from None
