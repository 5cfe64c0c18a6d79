"""What a torch runner says of its model and of the memory that it took for it."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from signalbox.protocol.model_identity import ModelIdentity
from worker_svc.core.batch import DEFAULT_SLOTS, RunnerInfo
from worker_svc.core.requests.pooling import PoolingMode
from worker_svc.runner.attention.layer_groups import CacheLayout
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model import checkpoint
from worker_svc.runner.model.label_head import decoder_tasks, label_settings
from worker_svc.runner.model.loading import LoadedModel
from worker_svc.runner.model.pooling_config import POOLING_CONFIG, read_pooling_mode
from worker_svc.runner.recurrent.making import state_group_of
from worker_svc.runner.recurrent.store import StateStore

logger = logging.getLogger(__name__)


def runner_info(
    model: LoadedModel,
    path: Path,
    layout: CacheLayout,
    states: StateStore | None,
    *,
    served_model_name: str,
    block_size: int,
    max_model_len: int | None,
    num_host_blocks: int,
    num_slots: int | None,
    has_vectors: bool,
    identity: ModelIdentity,
    kv_layout: str,
) -> RunnerInfo:
    """The offer of a runner of `model`, from `path`, with a cache in `layout` and recurrent states in `states`. The
    settings are the runner's own, None where nobody set them; `has_vectors`: hidden states can be read. ModelLoadError
    if more positions are asked for than the model was made for."""
    head = model.head
    pooling_mode = choose_pooling_mode(path) if has_vectors and head is None else None
    return RunnerInfo(
        model=served_model_name,
        num_blocks=layout.num_blocks,
        block_size=block_size,
        max_model_len=resolve_max_model_len(
            max_model_len, model.max_position_embeddings, layout.num_blocks * block_size
        ),
        vocab_size=model.vocab_size,
        eos_token_ids=model.eos_token_ids,
        tokenizer_fingerprint=tokenizer_fingerprint(path),
        num_host_blocks=num_host_blocks,
        tasks=decoder_tasks(head, pools=pooling_mode is not None),
        has_logprobs=head is None,
        has_prompt_logprobs=has_vectors and head is None,
        embedding_size=model.module.config.hidden_size if pooling_mode is not None else 0,
        pooling_mode=pooling_mode or PoolingMode.LAST,
        identity=identity,
        kv_layout=kv_layout,
        groups=layout.groups,
        num_slots=states.num_slots - 1 if states else num_slots or DEFAULT_SLOTS,
        num_state_versions=states.num_versions if states else 0,
        state_group=state_group_of(states, block_size, model.state_bytes),
        **label_settings(head),
    )


def choose_pooling_mode(path: Path) -> PoolingMode | None:
    """The model's own mode; None, which is logged, if pooling requests cannot be served as the model means them."""
    mode = read_pooling_mode(path)
    if mode is None:
        logger.warning("No pooling requests are served: %s asks for another pooling.", path / POOLING_CONFIG)
    return mode


def resolve_max_model_len(requested: int | None, model_limit: int, cache_positions: int) -> int:
    """Positions of one request. ModelLoadError if more are asked for than the model was made for."""
    if requested is None:
        return min(model_limit, cache_positions)
    if not 1 <= requested <= model_limit:
        raise ModelLoadError(
            f"max_model_len is {requested}, but max_position_embeddings of the model is {model_limit}."
        )
    return requested


def tokenizer_fingerprint(model_dir: Path) -> str:
    """SHA-256 of tokenizer.json in hexadecimal; empty if there is none."""
    path = model_dir / checkpoint.TOKENIZER
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
