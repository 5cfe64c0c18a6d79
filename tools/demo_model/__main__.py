"""Train the demo language model that signalbox ships: a small Qwen3 on the Python standard library.

Nothing is downloaded. The data are the sources of the Python that runs this script, the tokenizer is
trained on them, and a few million parameters take under an hour on two CPU cores. A run that was stopped
goes on from its last checkpoint when the same command is given again.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tools.demo_model.batches import LONG_STEP_EVERY, load_data
from tools.demo_model.checkpoints import load_checkpoint
from tools.demo_model.export import export
from tools.demo_model.network import build_model, count_parameters
from tools.demo_model.optimizers import build_optimizers
from tools.demo_model.settings import MAX_CONTEXT, Settings
from tools.demo_model.training import train

EXAMPLES = """\
examples:
  the model that is shipped:
    python -m tools.demo_model --minutes 40
  what a run in progress has learned so far:
    python -m tools.demo_model --export-only
  a draft model with the same tokenizer and a tenth of the parameters:
    python -m tools.demo_model --out signalbox/demo_model/draft --work-dir /tmp/draft \\
      --tokenizer signalbox/demo_model --minutes 14 --threads 1 \\
      --hidden-size 96 --num-layers 3 --num-heads 3 --num-kv-heads 1 --head-dim 32 --intermediate-size 320
"""


def parse_settings() -> Settings:
    parser = argparse.ArgumentParser(
        prog="python -m tools.demo_model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EXAMPLES,
    )
    add = parser.add_argument
    add_run_options(add)
    add_shape_options(add)
    add_learning_options(add)
    settings = Settings(**vars(parser.parse_args()))
    if settings.minutes <= 0:
        parser.error("--minutes must be positive")
    if not 0 < settings.sequence_length <= min(settings.batch_tokens, MAX_CONTEXT):
        parser.error(f"--sequence-length must not exceed --batch-tokens or {MAX_CONTEXT}")
    return settings


def add_run_options(add: Callable[..., Any]) -> None:
    out, scratch = Path("signalbox/demo_model"), Path(tempfile.gettempdir()) / "signalbox-demo-model"
    work_help = "folder for checkpoints and the token cache; one per model (%(default)s)"
    export_help = "write the newest checkpoint to --out and exit; its run may go on meanwhile"
    add("--out", type=Path, default=out, help="folder for the finished model (%(default)s)")
    add("--work-dir", type=Path, default=scratch, help=work_help)
    add("--minutes", type=float, default=40, help="training time on the clock (%(default)s)")
    threads_help = "CPU threads; on a shared machine set OMP_WAIT_POLICY=passive too (%(default)s)"
    add("--threads", type=int, default=os.cpu_count() or 1, help=threads_help)
    add("--seed", type=int, default=0, help="seed of weights, batches and samples (%(default)s)")
    add(
        "--tokenizer", type=Path, help="reuse the tokenizer of this folder, as a draft model must (train one)"
    )
    add("--export-only", action="store_true", help=export_help)


def add_learning_options(add: Callable[..., Any]) -> None:
    length_help = f"context of a step, but of every {LONG_STEP_EVERY}th: {MAX_CONTEXT} (%(default)s)"
    adam_help = "peak learning rate of the embedding and the norms (%(default)s)"
    add("--batch-tokens", type=int, default=2048, help="tokens per step (%(default)s)")
    add("--sequence-length", type=int, default=512, help=length_help)
    add("--muon-lr", type=float, default=1e-2, help="peak learning rate of the matrices (%(default)s)")
    add("--adam-lr", type=float, default=3e-3, help=adam_help)


def add_shape_options(add: Callable[..., Any]) -> None:
    add("--hidden-size", type=int, default=256, help="width of the residual stream (%(default)s)")
    add("--num-layers", type=int, default=8, help="blocks (%(default)s)")
    add("--num-heads", type=int, default=4, help="query heads (%(default)s)")
    add("--num-kv-heads", type=int, default=2, help="key/value heads; divides --num-heads (%(default)s)")
    add("--head-dim", type=int, default=64, help="width of a head (%(default)s)")
    add("--intermediate-size", type=int, default=768, help="width inside the MLP (%(default)s)")


def main() -> None:
    settings = parse_settings()
    settings.work_dir.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(settings.threads)
    data = load_data(settings)
    model = build_model(settings)
    print(f"{len(data.train):,} training tokens, {count_parameters(model):,} parameters", flush=True)
    if settings.export_only:
        progress = load_checkpoint(settings, model, build_optimizers(model, settings))
    else:
        progress = train(settings, model, data.train)
    export(settings, model, data, progress)


if __name__ == "__main__":
    main()
