"""What a model that is divided among ranks needs besides its modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from typing import Any

import torch

from worker_svc.runner.attention.kv_cache import NO_KV, LayerShape
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.split.communicator import Communicator
from worker_svc.runner.split.elsewhere import staged
from worker_svc.runner.split.expert_share import Shapes, own_source, shapes_of, share_of, with_own, wrap
from worker_svc.runner.split.links import StageLink
from worker_svc.runner.split.plan import SplitPlan, localise, plan_of
from worker_svc.runner.split.reduced import SplitHead, Sums
from worker_svc.runner.split.shares import Share
from worker_svc.runner.split.slices import split_source
from worker_svc.runner.split.stage import Stage, only_of, stage_of
from worker_svc.weights.source import WeightSource

HEAD = "lm_head"


class Split:
    """One rank's part of a model: of a stage's layers, if there are several stages."""

    def __init__(
        self,
        ranks: Communicator,
        everyone: Communicator | None = None,
        stage_number: int = 0,
        num_stages: int = 1,
        link: StageLink | None = None,
        *,
        by_expert: bool = False,
        device: str = "cpu",
    ) -> None:
        """ranks: those of the same stage. everyone: all ranks; None: there is one stage. link: to the neighbours in the
        pipeline. by_expert: each rank has some experts whole, not a part of all. device: where this rank computes."""
        self.ranks, self.everyone = ranks, everyone or ranks
        self.stage_number, self.num_stages, self.link = stage_number, num_stages, link
        self.device = device
        self.stage: Stage | None = None
        """The layers that are here, once the config is known; None: all."""
        self.known_states: torch.Tensor | None = None
        """What the stage before makes of the probe's tokens, once it is known."""
        self._by_expert = by_expert
        self._experts: tuple[Shapes, Share] | None = None
        self._plan: SplitPlan | None = None
        self._sums: Sums | None = None

    @property
    def told(self) -> str:
        """For what a result depends on: sums are made in another order than by one process."""
        of_stage = f"{self.ranks.size} ranks" if self.is_cut else ""
        of_stage += " by experts" if self._by_expert else ""
        of_stages = f"{self.num_stages} stages" if self.num_stages > 1 else ""
        return " x ".join(filter(None, (of_stages, of_stage)))

    @property
    def is_cut(self) -> bool:
        """Each layer is divided among several ranks."""
        return self.ranks.size > 1

    def localise(
        self, config: Any, source: WeightSource, model_class: Any, *, has_words: bool = True
    ) -> WeightSource:
        """Makes the config that of this rank's part, and gives its weights. has_words: the head is over words, not
        labels. ModelLoadError where neither can be."""
        if self._by_expert:
            with torch.device("meta"):
                whole = shapes_of(model_class(deepcopy(config)))
            self._experts = whole, share_of(whole, self.ranks.rank, self.ranks.size)
            source = own_source(source, self._experts[1])
        if self.num_stages > 1:
            if not has_words:
                raise ModelLoadError(
                    "pipeline_parallel is for models that generate, and this one has labels."
                )
            has_head = self.stage_number == 0 and self.ranks.rank == 0
            stage = self.stage = stage_of(
                config, source, self.stage_number, self.num_stages, has_head=has_head
            )
            source = only_of(source, stage)
        if not self.is_cut:
            return source
        plan = self._plan = plan_of(config, self.ranks.rank, self.ranks.size)
        localise(config, plan)
        return split_source(source, plan, str(config.model_type), has_experts_whole=self._by_expert)

    def class_of(self, model_class: Any) -> Any:
        """The class of a model that has this rank's layers and experts alone."""
        stage = self.stage
        if stage is not None:
            model_class = staged(model_class, stage)
        if self._experts is None:
            return model_class
        shapes, share = self._experts
        here = {name: own for name, own in shapes.items() if stage is None or stage.has(f"{name}.")}
        return with_own(model_class, here, share)

    def join(self, module: Any, *, splits_head: bool) -> None:
        """Has a module of such weights say what the whole one would. splits_head: each rank has a part of the words;
        not where some of them are labels, nor where there are stages."""
        plan = self._plan
        if plan is None:
            return
        if self._experts is not None:
            wrap(module, self._experts[1])
        if splits_head and self.stage is None and hasattr(module, HEAD):
            setattr(module, HEAD, SplitHead(getattr(module, HEAD), plan, self.ranks))
        self._sums = Sums(module, plan, self.ranks)
        self._sums.attach()

    @contextmanager
    def swapping(self) -> Iterator[None]:
        """Meanwhile modules are swapped for others of the same part, and compared with them: nothing is summed."""
        with nullcontext() if self._sums is None else self._sums.paused():
            yield
        if self._sums is not None:
            self._sums.attach()

    def of_all_stages(self, number: int) -> int:
        """The sum of what the stages have of something; `number` is ours."""
        if self.stage is None:
            return number
        mine = 0 if self.ranks.rank else number  # one rank of each stage says it
        return int(self.everyone.sum(torch.tensor([mine], dtype=torch.int64)).item())

    def shapes_of_all(self, shapes: Sequence[LayerShape]) -> list[LayerShape]:
        """What the layers of all stages keep; `shapes` are those of ours, and nothing for the others."""
        if self.stage is None:
            return list(shapes)
        numbers = torch.tensor([_numbers_of(shape) for shape in shapes], dtype=torch.int64)
        if self.ranks.rank:  # one rank of each stage says it
            numbers.zero_()
        return [_shape_of(row) for row in self.everyone.sum(numbers).tolist()]


def _numbers_of(shape: LayerShape) -> list[int]:
    """A shape as numbers, all 0 where it keeps nothing."""
    kind, reach = shape.sees or (0, 0)
    sizes = [shape.num_kv_heads, shape.key_dim, shape.value_dim]
    return [
        *sizes,
        int(shape.values_in_keys),
        int(kind),
        reach,
        0 if shape.shares is None else 1 + shape.shares,
    ]


def _shape_of(numbers: list[int]) -> LayerShape:
    heads, key_dim, value_dim, values_in_keys, kind, reach, behind_shared = numbers
    if not heads:
        return NO_KV
    sees, shares = (kind, reach) if reach else None, behind_shared - 1 if behind_shared else None
    return LayerShape(heads, key_dim, value_dim, bool(values_in_keys), sees, shares)
