"""Products of routers, which decide which experts a row gets: they may not depend on the other rows, either."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from worker_svc.runner.cpu.experts.packed_stack import PackedStack
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.packed_linear import TOLERANCES, PackingError, probe_rows, relative_error

ROUTERS = ("Router", "Gate")
"""How the names of routers' classes end."""
WIDENING = (torch.Tensor.type, torch.Tensor.to, torch.Tensor.float)


class RowWeight(torch.Tensor):
    """A router's weight `[outputs, inputs]`: `F.linear` with it is our own kernel's, in its dtype or in float32. To all
    else it is a tensor like others, so that routers can stay transformers' own."""

    kernels: Kernels
    stack: PackedStack
    wide: RowWeight
    """This weight in float32; itself, if it is that."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Takes products and conversions to float32 aside."""
        if func is F.linear and isinstance(args[1], cls):
            return args[1].product(*args, **(kwargs or {}))
        if func is torch.Tensor.float or (func in WIDENING and torch.float32 in args):
            return args[0].wide
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    def product(
        self, rows: torch.Tensor, _weight: RowWeight, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """`[..., inputs]` to `[..., outputs]`."""
        call, rows = self.stack.calls[0], rows.contiguous()
        has_dot = self.kernels.has_dot and call.bits == 16
        out = self.kernels.linear(rows, call) if has_dot else self.kernels.linear_plain(rows, call)
        return out if bias is None else out + bias


def row_weight(weight: torch.Tensor, kernels: Kernels) -> RowWeight:
    """Returns a copy of `weight` with products of its own. PackingError if these give other results."""
    weight = weight.detach()
    made = weight.as_subclass(RowWeight)
    made.kernels, made.stack = kernels, PackedStack(1, lambda _: weight)
    made.wide = made if weight.dtype == torch.float32 else row_weight(weight.float(), kernels)
    probe = probe_rows(weight.shape[1], weight.dtype)
    if not relative_error(F.linear(probe, made), F.linear(probe, weight)) <= TOLERANCES[weight.dtype]:
        raise PackingError("the router's product gives other results")
    return made


def is_router(module: nn.Module) -> bool:
    """True for what scores experts with a weight of its own."""
    # By its name first: a quantised layer makes its whole weight anew for whoever asks.
    if not type(module).__name__.endswith(ROUTERS):
        return False
    weight = getattr(module, "weight", None)
    return isinstance(weight, nn.Parameter) and weight.dim() == 2


def with_row_weight(router: nn.Module, kernels: Kernels) -> nn.Module:
    """The router itself, with that weight. PackingError if it cannot."""
    made = row_weight(router.get_parameter("weight"), kernels)
    del router.weight
    router.weight = made
    return router
