"""The digest of a checkpoint: I7."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from worker_svc.runner.errors import ModelLoadError
from worker_svc.weights import digest
from worker_svc.weights.digest import PIECE_BYTES, digest_of, piece_starts

CONFIG = {"model_type": "llama", "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "transformers_version": "5.0"}


def make_tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = {"embed": (3000, 400), "a.weight": (600, 400), "norm": (64,)}
    return {
        name: torch.randn(shape, generator=generator).to(torch.bfloat16) for name, shape in shapes.items()
    }


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    save_file(make_tensors(), tmp_path / "model.safetensors")
    return tmp_path


def test_files_do_not_matter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same tensors in two files, in another order, under another directory's name."""
    split = tmp_path_factory.mktemp("split")
    shutil.copy(model / "config.json", split)
    tensors = make_tensors()
    save_file({"norm": tensors.pop("norm")}, split / "b.safetensors")
    save_file(tensors, split / "a.safetensors", {"format": "pt"})
    weight_map = dict.fromkeys(tensors, "a.safetensors") | {"norm": "b.safetensors"}
    (split / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert digest_of(split) == digest_of(model)


def change_weights(model: Path, name: str, value: torch.Tensor) -> None:
    tensors = load_file(model / "model.safetensors")
    tensors[name] = value.contiguous()
    (model / "model.safetensors").unlink()
    save_file(tensors, model / "model.safetensors")


@pytest.mark.parametrize("name", ["embed", "a.weight", "norm"])
def test_a_changed_matrix_is_seen(model: Path, name: str) -> None:
    """What training, merging an adapter, or rounding does."""
    before = digest_of(model)
    change_weights(model, name, make_tensors()[name] * 1.01)
    assert digest_of(model) != before


def test_one_number_of_a_small_tensor_is_seen(model: Path) -> None:
    before, norm = digest_of(model), make_tensors()["norm"]
    norm[17] += 1
    change_weights(model, "norm", norm)
    assert digest_of(model) != before


def test_type_and_shape_are_seen(model: Path) -> None:
    weight = make_tensors()["a.weight"]
    seen = {digest_of(model)}
    for other in (weight.view(torch.float16), weight.view(400, 600)):
        change_weights(model, "a.weight", other)
        seen.add(digest_of(model))
    assert len(seen) == 3


def test_of_the_config_what_changes_results_is_seen(model: Path) -> None:
    before = digest_of(model)
    (model / "config.json").write_text(
        json.dumps(CONFIG | {"transformers_version": "4.0", "dtype": "float32"})
    )
    assert digest_of(model) == before
    (model / "config.json").write_text(json.dumps(CONFIG | {"rope_theta": 5e5}))
    assert digest_of(model) != before


def test_pieces_lie_within_a_tensor_at_both_its_ends() -> None:
    assert list(piece_starts(0, 4)) == []
    assert list(piece_starts(PIECE_BYTES + 1, 4)) == [0, PIECE_BYTES]
    starts = list(piece_starts(10**9, 64))
    assert len(starts) == 64 and starts[0] == 0 and starts[-1] == 10**9 - PIECE_BYTES
    assert starts == sorted(starts)


def test_many_tensors_have_few_pieces_each(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest is of the checkpoint all the same: the number follows from how many tensors it has."""
    monkeypatch.setattr(digest, "MAX_PIECES", 3)
    before = digest_of(model)
    change_weights(model, "embed", make_tensors()["embed"] * 1.01)
    assert digest_of(model) != before


def test_a_directory_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="neither"):
        digest_of(tmp_path)
