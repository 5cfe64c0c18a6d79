"""The absorbed projections of a layer that keeps latents, by our own kernel: all heads in one call."""

from __future__ import annotations

import torch

from worker_svc.runner.attention.latent import AbsorbedProjections
from worker_svc.runner.cpu.native.kernels import TILE, Kernels
from worker_svc.runner.cpu.native_linear import PackedWeight
from worker_svc.runner.cpu.packed_linear import PackingError


class NativeProjections(AbsorbedProjections):
    """Products in bfloat16. A row's result does not depend on the other rows."""

    def __init__(self, absorbed: AbsorbedProjections, kernels: Kernels) -> None:
        """Takes the place of `absorbed`, whose weights are not kept. PackingError if it cannot."""
        torch.nn.Module.__init__(self)
        self.latent_dim, self.rope_dim = absorbed.latent_dim, absorbed.rope_dim
        self.nope_dim, self.value_dim = absorbed.nope_dim, absorbed.value_dim
        if self.latent_dim % TILE or self.value_dim % TILE:
            raise PackingError(f"latents or values are not multiples of {TILE}")
        self._kernels = kernels
        self._to_keys = PackedWeight(absorbed.to_keys.transpose(1, 2).reshape(-1, self.nope_dim))
        self._to_values = PackedWeight(absorbed.to_values.reshape(-1, self.latent_dim))

    def queries(self, query: torch.Tensor) -> torch.Tensor:
        """`[T, Hq, nope_dim + rope_dim]` to `[T, Hq, latent_dim + rope_dim]`."""
        out = query.new_empty((*query.shape[:2], self.latent_dim + self.rope_dim))
        out[..., self.latent_dim :] = query[..., self.nope_dim :]
        self._kernels.linear_heads(query, self._to_keys.call, out)
        return out

    def outputs(self, out: torch.Tensor) -> torch.Tensor:
        """`[T, Hq, latent_dim]` to `[T, Hq, value_dim]`."""
        values = out.new_empty((*out.shape[:2], self.value_dim))
        self._kernels.linear_heads(out, self._to_values.call, values)
        return values
