"""DeepSeek Sparse Attention (DeepSeek V3.2, 2025) as long as it would leave nothing out: an indexer picks the
`index_topk` positions that a query looks at, and of as many it picks all. What is left is DeepSeek V3."""

from __future__ import annotations

import itertools
import logging
from typing import Any

from transformers import DeepseekV3Config

from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.support import INDEXED_FAMILIES

logger = logging.getLogger(__name__)

DENSE, SPARSE = "dense", "sparse"
OF_THE_INDEXER = ("index_topk", "index_head_dim", "index_n_heads", "indexer_types")
NOT_OF_V3 = (*OF_THE_INDEXER, "layer_types", "mlp_layer_types", "model_type", "architectures")


def without_indexer(config: Any) -> Any:
    """transformers' config of the model without what picks; `config` itself where nothing does. ModelLoadError for
    dense layers behind those with experts."""
    if config.model_type not in INDEXED_FAMILIES:
        return config
    fields = {name: value for name, value in config.to_dict().items() if name not in NOT_OF_V3}
    fields["first_k_dense_replace"] = num_dense(config.mlp_layer_types)
    logger.info(
        "%s is served without its indexer: queries look at all positions, of which there are no more than %d",
        config.model_type,
        config.index_topk,
    )
    return DeepseekV3Config(**fields)


def num_dense(kinds: list[str]) -> int:
    """Layers ahead of the first with experts. ModelLoadError if a dense one comes behind it."""
    runs = [kind for kind, _ in itertools.groupby(kinds)]
    if runs not in ([DENSE], [SPARSE], [DENSE, SPARSE]):
        raise ModelLoadError("mlp_layer_types has dense layers behind sparse ones, or others.")
    return kinds.count(DENSE)
