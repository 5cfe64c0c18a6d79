"""Models of the Hugging Face hub, from a hub on this machine: what is fetched, what is kept, what is said."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from signalbox.cli.models.hub import HubModel, _is_whole, read_id
from tests.ports import free_ports
from tests.signalbox.cli.models.hub_server import TOKEN, Hub, serving

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
SERVED = {
    "config.json": b'{"model_type": "llama"}',
    "generation_config.json": b"{}",
    "tokenizer.json": b"{}" * 50,
    "chat_template.jinja": b"{{ messages }}",
    "additional_chat_templates/tool_use.jinja": b"{{ tools }}",
    "hf_quant_config.json": b"{ }",
    "config_sentence_transformers.json": b"{  }",
    "1_LogitScore/config.json": b"{   }",
    "model.safetensors.index.json": json.dumps({"weight_map": dict(zip("ab", SHARDS, strict=True))}).encode(),
    "model-00001-of-00002.safetensors": b"a" * 300_000,
    "model-00002-of-00002.safetensors": b"b" * 5000,
}
OTHERS = {
    "pytorch_model.bin": b"pickled",
    "onnx/model.onnx": b"onnx",
    "original/model.safetensors": b"again",
    "consolidated.safetensors": b"again",
    "README.md": b"words",
}


@dataclass
class Home:
    """A hub, and a cache of Hugging Face that belongs to the test."""

    hub: Hub
    environment: dict[str, str]

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Status, stdout and stderr of `signalbox ...`: the library reads its variables when it is imported."""
        done = subprocess.run(
            [sys.executable, "-m", "signalbox", *arguments],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout, done.stderr

    def refusal(self, *arguments: str, **environment: str) -> str:
        """The one sentence of a command that fails."""
        status, _, err = self.run(*arguments, **environment)
        assert status == 1
        return err.splitlines()[-1].removeprefix("signalbox: ")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with serving(SERVED | OTHERS) as hub:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSF"))}
        own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1"}
        yield Home(hub, kept | own | {"HF_HUB_DISABLE_TELEMETRY": "1"})


def directory_in(out: str) -> Path:
    """The directory that `signalbox pull` prints."""
    return Path(out.partition(" is in ")[2].partition(" (")[0])


def names_in(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Qwen/Qwen3-0.6B", HubModel("Qwen/Qwen3-0.6B")),
        ("acme/tiny@refs/pr/3", HubModel("acme/tiny", "refs/pr/3")),
        *[
            (text, None)
            for text in ("smollm2", "./acme/tiny", "/acme/tiny", "~/tiny", "a/b/c", "a/../b", "a/b@")
        ],
    ],
)
def test_a_name_of_the_hub_has_an_owner(text: str, expected: HubModel | None) -> None:
    assert read_id(text) == expected


def test_only_what_is_needed_is_fetched_and_only_once(home: Home) -> None:
    """And then it is there without the hub: for `pull` in its cache, as for `up`."""
    status, out, err = home.run("pull", "acme/tiny")
    assert (status, err) == (0, f"fetching acme/tiny from {home.hub.url} (0 MB)\n")
    directory = directory_in(out)
    assert names_in(directory) == set(SERVED)
    assert (directory / "model-00001-of-00002.safetensors").read_bytes() == b"a" * 300_000
    assert sorted(home.hub.fetched()) == sorted(SERVED)
    assert home.run("pull", "acme/tiny@v1")[0] == 0
    assert sorted(home.hub.fetched()) == sorted(SERVED)
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    for without in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": nowhere}):
        status, out, _ = home.run("pull", "acme/tiny", **without)
        assert (status, directory_in(out)) == (0, directory)


def test_up_fetches_what_is_not_there(home: Home) -> None:
    """And goes on: here to a port that is taken."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = home.refusal("up", "--model", "acme/tiny", "--scheduler", f"127.0.0.1:{port}")
    assert said == f"port {port} on 127.0.0.1 is in use; choose another with --scheduler"
    assert sorted(home.hub.fetched()) == sorted(SERVED)


def test_up_fetches_what_another_program_has_left_out(home: Home) -> None:
    """Without a list of the repository's files, which older programs do not keep."""
    directory = directory_in(home.run("pull", "acme/tiny")[1])
    (directory / SHARDS[1]).resolve().unlink()
    (directory / SHARDS[1]).unlink()
    shutil.rmtree(directory.parents[1] / "trees")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert "is in use" in home.refusal("up", "--model", "acme/tiny", "--scheduler", address)
    assert home.hub.fetched().count(SHARDS[1]) == 2
    assert (directory / SHARDS[1]).read_bytes() == SERVED[SHARDS[1]]


def test_what_was_broken_off_goes_on(home: Home) -> None:
    home.hub.num_bytes_before_break = 200_000
    status, out, _ = home.run("pull", "acme/tiny")
    assert status == 0
    assert (directory_in(out) / "model-00001-of-00002.safetensors").read_bytes() == b"a" * 300_000


def test_content_that_its_hash_does_not_name_is_not_kept(home: Home) -> None:
    home.hub.files = home.hub.files | {"model-00002-of-00002.safetensors": b"bc" * 2500}
    home.hub.damages = {"model-00002-of-00002.safetensors"}
    said = home.refusal("pull", "acme/tiny")
    assert said.startswith("model-00002-of-00002.safetensors of acme/tiny came with other content")
    home.hub.damages = set()
    status, out, _ = home.run("pull", "acme/tiny")
    assert status == 0
    assert (directory_in(out) / "model-00002-of-00002.safetensors").read_bytes() == b"bc" * 2500


def test_a_gated_model_wants_a_token_and_takes_it(home: Home) -> None:
    said = home.refusal("pull", "acme/gated")
    assert said == f"acme/gated is gated: ask for access at {home.hub.url}/acme/gated and set HF_TOKEN"
    assert home.run("pull", "acme/gated", HF_TOKEN=TOKEN)[0] == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("acme/other", "{hub} has no model acme/other, or it is private: set HF_TOKEN"),
        ("acme/tiny@v2", "acme/tiny has no revision v2"),
    ],
)
def test_what_the_hub_does_not_have_is_said(home: Home, name: str, words: str) -> None:
    assert home.refusal("up", "--model", name) == words.format(hub=home.hub.url)


def test_without_a_network_it_says_so(home: Home) -> None:
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    said = home.refusal("pull", "acme/tiny", HF_ENDPOINT=nowhere)
    assert said == f"{nowhere} is out of reach, and acme/tiny is not in the cache"
    said = home.refusal("up", "--model", "acme/tiny", HF_HUB_OFFLINE="1")
    assert said == "acme/tiny is not in the cache, and HF_HUB_OFFLINE forbids to fetch it"


def test_a_model_without_safetensors_is_refused_before_anything_is_fetched(home: Home) -> None:
    home.hub.files = {"config.json": b"{}", "pytorch_model.bin": b"pickled"}
    said = home.refusal("pull", "acme/tiny")
    assert said == "acme/tiny has no weights in safetensors; others are not served"
    assert home.hub.fetched() == []


def test_a_file_whose_name_leads_out_of_the_cache_is_not_written(home: Home, tmp_path: Path) -> None:
    home.hub.files["additional_chat_templates/../../../../../../evil.jinja"] = b"evil"
    told = home.refusal("pull", "acme/tiny")
    assert "evil.jinja" in told
    assert not list(tmp_path.rglob("evil.jinja"))


@pytest.mark.parametrize(
    "index", ["[" * 100_000, "{", '{"weight_map": {"a": ["b"], "c": 5}}', '{"weight_map": 5}']
)
def test_a_model_in_the_cache_with_a_damaged_index_is_not_whole(tmp_path: Path, index: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_text("")
    (tmp_path / "model.safetensors.index.json").write_text(index)
    assert not _is_whole(tmp_path)


def test_a_token_that_the_hub_does_not_know_is_said(home: Home) -> None:
    assert "gated" in home.refusal("pull", "acme/gated", HF_TOKEN="hf_wrong")
