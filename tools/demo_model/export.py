"""The finished model, as a folder that transformers loads."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from tools.demo_model.batches import Data
from tools.demo_model.card import write_card
from tools.demo_model.checkpoints import Progress
from tools.demo_model.network import write_model
from tools.demo_model.settings import Settings
from tools.demo_model.tokenizer import write_tokenizer


def export(settings: Settings, model: Any, data: Data, progress: Progress) -> None:
    """Builds the folder aside and moves file by file, so that a reader of `out` never meets half a file."""
    settings.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=settings.work_dir) as name:
        folder = Path(name)
        write_tokenizer(data.tokenizer, folder)
        write_model(model, folder)
        write_card(settings, folder, model, data, progress)
        for path in sorted(folder.iterdir()):
            partial = settings.out / f".{path.name}.partial"
            shutil.copyfile(path, partial)
            partial.replace(settings.out / path.name)
    size = sum(path.stat().st_size for path in settings.out.iterdir())
    print(f"wrote {settings.out}: {size / 1e6:.2f} MB", flush=True)
