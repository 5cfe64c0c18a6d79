"""What a stage is looked at with when it is loaded: the states that the stage before makes of the probe's tokens."""

from __future__ import annotations

import torch

from worker_svc.runner.attention import attention
from worker_svc.runner.model.head import base_of
from worker_svc.runner.model.loading import LoadedModel
from worker_svc.runner.model.probe import probe_tokens
from worker_svc.runner.split.elsewhere import Entry


@torch.inference_mode()
def learn_states(model: LoadedModel) -> None:
    """Takes the states of the probe's tokens from the stage before, if there is one, and sends on what our layers make
    of them with the model's own attention. A stage that is loaded anew has them already."""
    split = model.split
    if split is None or split.stage is None:
        return
    tokens, stage = probe_tokens(model), split.stage
    base = base_of(model.module)
    shape = (tokens.shape[1], int(model.module.config.hidden_size))
    is_new = split.known_states is None
    if not stage.is_first:
        assert split.link is not None and isinstance(base.layers[0], Entry)
        if split.known_states is None:
            split.known_states = split.link.receive(shape, model.dtype)
        base.layers[0].embedding.learn(tokens[0], split.known_states)
    elif is_new:
        split.known_states = torch.empty(0)
    if is_new and not stage.is_last:
        _send_on(model, tokens, shape)


def _send_on(model: LoadedModel, tokens: torch.Tensor, shape: tuple[int, int]) -> None:
    assert model.split is not None and model.split.link is not None
    size = shape[0] * shape[1] * model.dtype.itemsize
    model.module.set_attn_implementation("eager")
    try:
        positions = torch.arange(shape[0], device=model.device)[None]
        output = base_of(model.module)(input_ids=tokens, position_ids=positions, use_cache=False)
        model.split.link.send(output.last_hidden_state[0], size)
    except Exception:
        model.split.link.send(None, size)
        raise
    finally:
        model.module.set_attn_implementation(attention.IMPLEMENTATION)
