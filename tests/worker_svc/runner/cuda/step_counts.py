"""Counts what the host does in a step of the GPU's runner: uploads, replays of graphs, launches, waits, copies back.

    python -m tests.worker_svc.runner.cuda.step_counts              # beside their budgets
    python -m tests.worker_svc.runner.cuda.step_counts --tighten    # lower the budgets to the counts

The steps run on a CPU, with the stand-in for graphs, and kernels of Triton are launched and do not run."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.worker_svc.runner.cuda.launches import launching
from tests.worker_svc.runner.cuda.recorded_capture import RecordedCapture, waits_for_device
from tests.worker_svc.runner.cuda.unchecked_runner import UncheckedRunner
from tests.worker_svc.runner.runner_harness import GREEDY, Driver
from tools.make_random_model import make_model
from tools.structure.budgets import complaints, read_budgets, tightened, write_budgets
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.runner.cuda import sampler
from worker_svc.runner.cuda.captures import Results
from worker_svc.runner.cuda.transfers import HostCopy

ROOT = Path(__file__).resolve().parents[4]
PATH = Path(__file__).resolve().with_name("step_budgets.toml").relative_to(ROOT)
"""The budgets, from the root of a checkout."""
COMMAND = "python -m tests.worker_svc.runner.cuda.step_counts"
HEAD = f"""\
# The most that the host may do in a step of 64 decode rows, and in one with a part of a prompt beside them, as
# `{COMMAND}` counts it. Its `--tighten` lowers budgets to the counts. A budget
# is raised by a commit that changes only this file, and whose body gives the measured reason.
"""
MODELS = {"dense": "tiny-qwen3", "mixture": "tiny-qwen3-moe", "hybrid": "hybrid-qwen3-5"}
NUMBERS = ("uploads", "replays", "launches", "waits", "host_copies")
NUM_ROWS, PROMPT, CHUNK = 64, 5, 33
MOST_CANDIDATES = 64
"""Fewer than the tiny models' vocabularies have, as with those of real models."""
DRAWN = SamplingParams(temperature=0.8, top_k=40, top_p=0.95, seed=7)
OWN_FROM_HOST = ("tensor", "as_tensor", "asarray", "from_numpy")
"""Functions of torch that copy numbers of the host."""
READ_BY_HOST = ("tolist", "cpu")
"""Methods of tensors that wait for the device and copy what they are of."""
ALLOCATIONS = ("aten::empty", "aten::new_empty")
"""How names of operators begin that compute nothing."""


class StepCounter(TorchDispatchMode):
    """Counts while it is active. An operator that computes is one launch, though some are several kernels. As nothing
    here tells a device from the host, what is counted as a copy are the functions that go from one to the other."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = dict.fromkeys(NUMBERS, 0)

    def count(self, *names: str) -> None:
        """One more of each."""
        for name in names:
            self.counts[name] += 1

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within it, everything is counted."""
        with ExitStack() as stack:

            def replace(owner: Any, name: str, before: Callable[..., None]) -> None:
                original = getattr(owner, name)

                def counted(*args: Any, **options: Any) -> Any:
                    before(*args)
                    return original(*args, **options)

                stack.enter_context(patch.object(owner, name, counted))

            for name in OWN_FROM_HOST:
                replace(torch, name, self._on_source)
            replace(torch.Tensor, "new_tensor", lambda _, source, *__: self._on_source(source))
            for name in READ_BY_HOST:
                replace(torch.Tensor, name, lambda *_: self.count("waits", "host_copies"))
            replace(torch.Tensor, "numpy", lambda *_: self.count("waits"))  # what a `HostCopy` has brought
            replace(HostCopy, "__init__", lambda *_: self.count("host_copies"))
            stack.enter_context(patch.object(sampler, "MOST_CANDIDATES", MOST_CANDIDATES))
            stack.enter_context(launching(lambda *_, **__: self.count("launches")))
            yield stack.enter_context(self)

    def _on_source(self, source: Any, *_: Any) -> None:
        if not isinstance(source, torch.Tensor) and np.size(source):
            self.count("uploads")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if waits_for_device(func, args):
            self.count("waits", "host_copies")
        elif func._schema.is_mutable or not (
            func._schema.name.startswith(ALLOCATIONS) or storages(out) <= storages((args, kwargs))
        ):
            self.count("launches")
        return out


def storages(values: Any) -> set[int]:
    """Addresses of the memory of all tensors among `values`."""
    return {
        leaf.untyped_storage().data_ptr() for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)
    }


class CountedCapture(RecordedCapture):
    """A stand-in for graphs whose replays are counted."""

    def __init__(self, on_replay: Callable[[], None]) -> None:
        super().__init__()
        self._on_replay = on_replay

    def __call__(self, run: Callable[[], Results]) -> tuple[Callable[[], object], Results]:
        """See `Capture`."""
        return self._on_replay, super().__call__(run)[1]


def count_steps(path: Path, counter: StepCounter) -> dict[str, dict[str, int]]:
    """The counts of a decode step and of a mixed one of a model. Half of the rows are drawn, half are greedy."""
    with launching(lambda *_, **__: None):
        runner = UncheckedRunner(
            path,
            served_model_name="tiny",
            num_slots=NUM_ROWS + 1,
            attention="triton",
            capture=CountedCapture(lambda: counter.count("replays")),
            dtype="bfloat16",
            num_blocks=4 * NUM_ROWS,
            block_size=16,
            max_model_len=128,
            threads=1,
        )
        driver = Driver(runner, num_slots=NUM_ROWS + 1)
        rows = [driver.add([5] * PROMPT, 8, params) for params in (GREEDY, DRAWN) * (NUM_ROWS // 2)]
        driver.step({row.slot: PROMPT for row in rows})
        driver.step({})  # after which the device has the rows' blocks
    found = {}
    for name, chunks in (("decode", {}), ("mixed", {driver.add([5] * CHUNK, 2).slot: CHUNK})):
        counter.counts = dict.fromkeys(NUMBERS, 0)
        with counter.active():
            driver.step(chunks)
        found[name] = counter.counts
    return found


def measure(model_dir: Callable[[str], Path], families: Iterable[str] = MODELS) -> dict[str, int]:
    """Counts by name, `steps.STEP.FAMILY.NUMBER`; model_dir: of a preset."""
    counted = {family: count_steps(model_dir(MODELS[family]), StepCounter()) for family in families}
    return {
        f"steps.{step}.{family}.{number}": count
        for step in ("decode", "mixed")
        for family, steps in counted.items()
        for number, count in steps[step].items()
    }


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tighten", action="store_true", help="write lower budgets")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = measure(lambda preset: make_model(preset, Path(folder) / preset))
    path = ROOT / PATH
    budgets = read_budgets(path.read_text()) if path.exists() else {}
    if arguments.tighten:
        budgets = tightened(counts, budgets)
        path.write_text(write_budgets(budgets, HEAD))
    for name, count in counts.items():
        print(f"{name:30} {count:5} {budgets.get(name, '-'):>6}")
    wrong = complaints(counts, budgets, f"{COMMAND} --tighten")
    print("".join(f"{line}\n" for line in wrong), end="", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
