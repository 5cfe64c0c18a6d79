"""The GPU's runner with Triton's kernels, for tests in which these do not run, or take long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.hybrid_families import HYBRID_PRESETS
from tools.make_random_model import PRESETS
from worker_svc.runner.cuda.experts import serve_experts
from worker_svc.runner.cuda.runner import CudaRunner
from worker_svc.runner.model.loading import LoadedModel, load_model
from worker_svc.runner.split.known_states import learn_states
from worker_svc.runner.triton.batch import TritonBatch
from worker_svc.runner.triton.fused import fuse

FAMILIES = [*sorted(name for name in PRESETS if name.startswith("tiny-")), *HYBRID_PRESETS]
"""Presets of tiny models, one or several of each family."""


class UncheckedRunner(CudaRunner):
    """Loads on the CPU, without the comparison with transformers' code, which takes the interpreter minutes."""

    def _load(self, path: Path, dtype: str, *others: Any) -> LoadedModel:
        model = load_model(path, dtype=dtype, device="cpu", max_model_len=others[-1])
        learn_states(model)
        serve_experts(model.module)
        fuse(model.module)
        self._batch_class = TritonBatch
        return model
