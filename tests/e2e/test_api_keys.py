"""A ring that asks for keys: the command line takes its own from the environment, and tenants share no blocks."""

from __future__ import annotations

from pathlib import Path

import openai
import pytest

from signalbox.api_keys import NewKey, make_key
from signalbox.client import Client
from signalbox.errors import AuthenticationError
from tests.e2e.conftest import Launch
from tests.e2e.test_ring import run_cli, wait_idle

PROMPT = "def quicksort(self, items, lower, upper):\n    pivot = items[lower]\n" * 3


def write_keys(path: Path) -> list[NewKey]:
    """Two keys of one tenant, one of another."""
    keys = [make_key() for _ in range(3)]
    tenants = ("acme", "acme", "other")
    path.write_text(
        "".join(
            f'"{key.key_id}" = {{ hash = "{key.hash}", tenant = "{tenant}" }}\n'
            for key, tenant in zip(keys, tenants, strict=True)
        )
    )
    return keys


@pytest.mark.slow
async def test_a_ring_with_keys(tmp_path: Path, launch_ring: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, other = write_keys(tmp_path / "keys.toml")
    monkeypatch.setenv("SIGNALBOX_API_KEY", first.text)
    ring = launch_ring("--frontend-set", f"key-file={tmp_path / 'keys.toml'}")
    ring.wait_for("signalbox is up")  # with its first completion, which needs a key too

    cached = {}
    for name, key in (("first", first), ("again", first), ("second", second), ("other", other)):
        async with Client(ring.grpc, api_key=key.text) as client:
            result = await client.generate(PROMPT, max_tokens=4, temperature=0).result()
            cached[name] = result.finished.num_cached_tokens
        wait_idle(ring)  # steps are sent ahead: a client may be told before the scheduler is
    assert cached["first"] == cached["other"] == 0, "another tenant's blocks are not for it"
    assert cached["again"] == cached["second"] > 0

    url = f"{ring.url}/v1"
    with openai.OpenAI(base_url=url, api_key=other.text, max_retries=0, timeout=60) as sdk:
        usage = sdk.completions.create(model="demo", prompt=PROMPT, max_tokens=4).usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens == cached["again"], "its own, by now"

    assert run_cli("generate", "def ", "--max-tokens", "2", "--address", ring.grpc).returncode == 0
    assert run_cli("chat", "--url", ring.url, "--max-tokens", "2", stdin="def \n").returncode == 0
    for target in (f"grpc://{ring.grpc}", ring.url):
        load = ("--streams", "1", "--requests", "2", "--prompt-tokens", "4", "--output-tokens", "2")
        done = run_cli("bench", "load", target, *load, "--json")
        assert (done.returncode, '"failed": 0' in done.stdout) == (0, True), done.stdout + done.stderr
    monkeypatch.delenv("SIGNALBOX_API_KEY")
    refused = run_cli("generate", "def ", "--address", ring.grpc)
    assert (refused.returncode, "needs an API key" in refused.stderr) == (1, True)
    async with Client(ring.grpc) as client:
        with pytest.raises(AuthenticationError):
            await client.list_models()
    assert not any(key.text in ring.logs() for key in (first, second, other))
