"""What stands ahead of a model's layers and behind them, whatever a family calls it."""

from __future__ import annotations

import re
from typing import Any

EMBEDDINGS = ("embed_tokens", "embeddings")
"""Names of the embedding of tokens."""
NORMS = ("norm", "final_layernorm", "embedding_norm", "norm_f")
"""Names of the norm behind the last layer."""
HEAD = "lm_head"
EMBEDDING_WEIGHT, NORM_WEIGHT, HEAD_WEIGHT = (
    re.compile(rf"(?:^|\.)(?:{'|'.join(names)})\.") for names in (EMBEDDINGS, NORMS, (HEAD,))
)
"""Found in the name of a weight of one of them, unless it is a layer's."""


def embedding_name(base: Any) -> str:
    """The attribute of a base model that is its embedding."""
    return next(name for name in EMBEDDINGS if hasattr(base, name))


def norm_name(base: Any) -> str:
    """The attribute of a base model that is its last norm."""
    return next(name for name in NORMS if hasattr(base, name))
