"""Labels of hidden states that are known, through the model as transformers runs it: not all machines have kernels that
stand in for that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers

from worker_svc.runner.model.head import ModelHead
from worker_svc.runner.model.label_head import read_label_head
from worker_svc.runner.model.scored_model import with_label_head

TOKENS = torch.arange(3, 20)[None]


@pytest.mark.parametrize("preset", ["qwen3-score", "qwen3-labels"])
@torch.inference_mode()
def test_labels_of_known_states(head_dir: Callable[[str], Path], preset: str) -> None:
    """LM13: those of queries 4 and 16 are the head's of the states there."""
    path = head_dir(preset)
    module = transformers.AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.float32).eval()
    label_head = read_label_head(path, module.config.to_dict())
    assert label_head is not None
    scored = with_label_head(module, label_head)
    head = ModelHead.of(scored)
    assert head is not None
    with head.capturing() as captured:
        scored(input_ids=TOKENS, position_ids=torch.arange(TOKENS.shape[1])[None])
    labels = head.logits(captured, torch.tensor([4, 16]))
    torch.testing.assert_close(labels, module.score(captured.hidden[[4, 16]]))
    assert not torch.equal(labels[0], labels[1])
