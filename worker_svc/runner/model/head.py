"""The last hidden states of a model, and the part of it that makes logits of them.

A family may scale or cap its logits behind `lm_head`. So that its own code does that here too, it is called with its
base model replaced by one that returns hidden states that are known already.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_outputs import MoeModelOutputWithPast


@dataclass
class StatesAlone(MoeModelOutputWithPast):
    """What a base model returns whose hidden states alone are known: heads ask for no more than whether there is."""

    shared_kv_states: Any = None
    """Gemma 4's."""


class CapturedStates:
    """What the base model returned in the forward pass that was captured."""

    def __init__(self, output: Any = None) -> None:
        """output: what is known of it, where others ran the model."""
        self.output = output

    @classmethod
    def of(cls, states: torch.Tensor) -> CapturedStates:
        """Hidden states `[T, H]` after the final norm, which others have computed."""
        return cls(StatesAlone(last_hidden_state=states[None]))

    @property
    def hidden(self) -> torch.Tensor:
        """[T, H] after the final norm."""
        assert self.output is not None, "the head does not call the base model as a whole"
        return self.output.last_hidden_state[0]  # type: ignore[no-any-return]


def base_of(module: Any) -> Any:
    """The base model of a causal one: all but its head."""
    return module.get_submodule(_base_path(module))


class ModelHead:
    """The head of a transformers causal language model."""

    def __init__(self, module: Any) -> None:
        self._module = module
        parent, _, self._base_name = _base_path(module).rpartition(".")
        self._parent = module.get_submodule(parent)
        self.vocab_size: int = module.config.vocab_size

    @classmethod
    def of(cls, module: Any) -> ModelHead | None:
        """The head of `module`; None if it has no base model apart from it."""
        return cls(module) if _base_path(module) else None

    @contextmanager
    def capturing(self) -> Iterator[CapturedStates]:
        """Keeps what the base model returns meanwhile."""
        captured = CapturedStates()

        def keep(_module: torch.nn.Module, _args: object, output: Any) -> None:
            captured.output = output

        handle = getattr(self._parent, self._base_name).register_forward_hook(keep)
        try:
            yield captured
        finally:
            handle.remove()

    def logits_of(self, states: torch.Tensor) -> torch.Tensor:
        """`[n, V]` logits, in the model's dtype, of states `[n, H]` behind the final norm that others have computed."""
        return self.logits(CapturedStates.of(states), torch.arange(len(states), device=states.device))

    def logits(self, captured: CapturedStates, queries: torch.Tensor) -> torch.Tensor:
        """`[n, V]` logits, in the model's dtype, of the query tokens `queries` `[n]`."""
        states = captured.hidden[queries][None]
        known = type(captured.output)(**{**captured.output, "last_hidden_state": states})
        base = getattr(self._parent, self._base_name)
        setattr(self._parent, self._base_name, _Known(known, base))
        try:
            return self._module(inputs_embeds=states, use_cache=False).logits[0]  # type: ignore[no-any-return]
        finally:
            setattr(self._parent, self._base_name, base)


def _base_path(module: Any) -> str:
    """The path of the module of a causal model that has all but its head; empty: it has none. Llama 4's text model says
    the name that it has in its wrapper. Heads of OPT and of models with an encoder (BART) call the `decoder` inside
    their base model, not the base model."""
    for name in (module.base_model_prefix, "model"):
        base = getattr(module, name, None) if name else None
        if isinstance(base, torch.nn.Module) and base is not module:
            return (
                f"{name}.decoder"
                if isinstance(getattr(base, "decoder", None), torch.nn.Module)
                else str(name)
            )
    return ""


class _Known(torch.nn.Module):
    """A base model whose output is known."""

    def __init__(self, output: Any, base: torch.nn.Module) -> None:
        """Numbers that heads ask of `base` are told here, too: Falcon H1's scales its logits by one."""
        super().__init__()
        for name, value in vars(base).items():
            if isinstance(value, int | float) and not hasattr(self, name):
                setattr(self, name, value)
        self._output = output

    def forward(self, *_: Any, **__: Any) -> Any:
        return self._output
