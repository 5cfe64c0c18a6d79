"""`signalbox models`: what is in the caches, and what the worker knows of it before loading."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from signalbox.cli.models.catalogue import SMOLLM2
from signalbox.cli.models.inventory import KeptModel, judge
from tests.signalbox.cli.models.test_hub import Home, home  # noqa: F401
from tests.worker_svc.gguf.tiny_gguf import write_gguf
from worker_svc.gguf.conversion import convert


def test_models_are_listed_with_what_speaks_against_them(home: Home, tmp_path: Path) -> None:  # noqa: F811
    assert home.run("models", XDG_CACHE_HOME=str(tmp_path))[1].startswith("no model is here yet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path))
        write_gguf(tmp_path / "tiny.gguf")
        convert(tmp_path / "tiny.gguf", SMOLLM2.directory)
    home.hub.files = {"config.json": b'{"model_type": "mamba"}', "model.safetensors": b"x"}
    assert home.run("pull", "acme/tiny")[0] == 0
    status, out, err = home.run("models", XDG_CACHE_HOME=str(tmp_path))
    assert (status, err) == (0, "")
    heads, ours, theirs = (line.split(maxsplit=2) for line in out.splitlines())
    assert heads[:2] == ["model", "family"]
    assert ours[:2] == ["smollm2", "llama"]
    assert ours[2].startswith("GGUF F32  yes ")
    assert theirs[:2] == ["acme/tiny", "mamba"]
    assert theirs[2].startswith(
        "-         no: config.json: model_type 'mamba' is not supported: it has recurrent"
    )
    listed = json.loads(home.run("models", "--json", XDG_CACHE_HOME=str(tmp_path))[1])
    assert [Path(each["directory"]).is_dir() for each in listed] == [True, True]


def test_judging_a_model_imports_no_torch() -> None:
    code = "import sys; import worker_svc.runner.model.support; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    "config",
    [
        "[" * 100_000,
        '{"model_type": "llama", "layer_types": 5}',
        '{"model_type": "llama", "rope_scaling": ' + '{"a":' * 900 + "{}" + "}" * 901,
        '{"model_type": ["llama"]}',
    ],
)
def test_an_odd_config_speaks_against_its_model_alone(tmp_path: Path, config: str) -> None:
    models = [KeptModel(name, tmp_path / name, 0) for name in ("odd", "other")]
    for model in models:
        model.directory.mkdir()
    (tmp_path / "odd" / "config.json").write_text(config)
    odd, other = judge(models)
    assert odd.problem
    assert other.problem == "config.json does not exist"
