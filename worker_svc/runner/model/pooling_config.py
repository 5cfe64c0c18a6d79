"""Which pooling a model was trained for, by the file that sentence-transformers puts beside it."""

from __future__ import annotations

import logging
from pathlib import Path

from worker_svc.core.requests.pooling import PoolingMode
from worker_svc.runner.model import checkpoint

logger = logging.getLogger(__name__)
POOLING_CONFIG = Path("1_Pooling") / "config.json"
MODES = {
    "pooling_mode_mean_tokens": PoolingMode.MEAN,
    "pooling_mode_lasttoken": PoolingMode.LAST,
    "pooling_mode_cls_token": PoolingMode.CLS,
}
NAMES = {"mean": PoolingMode.MEAN, "lasttoken": PoolingMode.LAST, "cls": PoolingMode.CLS}


def has_pooling_config(model_dir: Path) -> bool:
    """The model says how it pools."""
    return (model_dir / POOLING_CONFIG).is_file()


def read_pooling_mode(model_dir: Path) -> PoolingMode | None:
    """The model's own mode, LAST if it names none; None if it wants one that is not known here, or several at once."""
    path = model_dir / POOLING_CONFIG
    if not path.is_file():
        return PoolingMode.LAST
    config = checkpoint.read_json(path)
    if isinstance(config.get("pooling_mode"), str):  # as newer versions write it
        return NAMES.get(config["pooling_mode"])
    wanted = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    return MODES.get(wanted[0]) if len(wanted) == 1 else None


def choose_pooling_mode(path: Path) -> PoolingMode | None:
    """The model's own mode; None, which is logged, if pooling requests cannot be served as the model means them."""
    mode = read_pooling_mode(path)
    if mode is None:
        logger.warning("No pooling requests are served: %s asks for another pooling.", path / POOLING_CONFIG)
    return mode
