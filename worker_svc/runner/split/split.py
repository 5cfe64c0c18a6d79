"""What a model that is divided among ranks needs besides its modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from worker_svc.runner.split.communicator import Communicator
from worker_svc.runner.split.plan import SplitPlan, localise, plan_of
from worker_svc.runner.split.reduced import SplitHead, Sums
from worker_svc.runner.split.slices import split_source
from worker_svc.weights.source import WeightSource

HEAD = "lm_head"


class Split:
    """One rank's part of a model."""

    def __init__(self, ranks: Communicator) -> None:
        self.ranks = ranks
        self._plan: SplitPlan | None = None
        self._sums: Sums | None = None

    @property
    def told(self) -> str:
        """For what a result depends on: sums are made in another order than by one process."""
        return f"{self.ranks.size} ranks"

    def localise(self, config: Any, source: WeightSource) -> WeightSource:
        """Makes the config that of this rank's part, and gives its weights. ModelLoadError where neither can be."""
        plan = self._plan = plan_of(config, self.ranks.rank, self.ranks.size)
        localise(config, plan)
        return split_source(source, plan, str(config.model_type))

    def join(self, module: Any, *, splits_head: bool) -> None:
        """Has a module of such weights say what the whole one would. splits_head: each rank has a part of the words;
        not where some of them are labels."""
        plan = self._plan
        assert plan is not None, "its config was made this rank's"
        if splits_head and hasattr(module, HEAD):
            setattr(module, HEAD, SplitHead(getattr(module, HEAD), plan, self.ranks))
        self._sums = Sums(module, plan, self.ranks)
        self._sums.attach()

    @contextmanager
    def swapping(self) -> Iterator[None]:
        """Meanwhile modules are swapped for others of the same part, and compared with them: nothing is summed."""
        assert self._sums is not None, "the module has been joined"
        with self._sums.paused():
            yield
        self._sums.attach()
