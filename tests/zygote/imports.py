"""What the zygote has imported: for each kind of process what it would import, once one of that kind is wanted."""

from __future__ import annotations

import gc
import importlib
import os

from signalbox.runtime.cores import spin_count
from tests.zygote.order import Order

LIGHT = ("signalbox.cli.main", "scheduler_svc.server", "frontend_svc.server")
WORKER = (
    "transformers.models.auto.modeling_auto",
    "transformers.models.qwen3.modeling_qwen3",
    "worker_svc.runner.torch_runner",
    "worker_svc.guardian.guarded",
    "worker_svc.server",
)


class Imports:
    """Of one zygote. Variables that libraries read at import are set as the services set them."""

    def __init__(self) -> None:
        self._done: set[str] = set()
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        os.environ.setdefault("GOMP_SPINCOUNT", spin_count())
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # it starts threads when it is loaded

    def prepare(self, order: Order) -> None:
        """Imports what the process will need, and those that it starts."""
        heavy = order.command[2].startswith("worker_svc") or order.starts_more
        wanted = {*LIGHT, *(WORKER if heavy else ())} - self._done
        if not wanted:
            return
        gc.disable()
        for name in wanted:
            importlib.import_module(name)
        if heavy:  # a thousand patterns, compiled when the first model is loaded
            conversion_mapping = importlib.import_module("transformers.conversion_mapping")
            conversion_mapping.get_checkpoint_conversion_mapping("")
        gc.collect()
        gc.freeze()  # no collection of a fork touches, and thereby copies, what it shares
        gc.enable()
        self._done |= wanted
