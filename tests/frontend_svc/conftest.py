"""A tiny model directory, and a frontend against the scripted cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import openai
import pytest
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from frontend_svc.access import access_control
from frontend_svc.config import FrontendSettings
from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer, load_tokenizer
from signalbox.links import rpc
from signalbox.vllm.engine_pb2_grpc import VllmEngineStub
from signalbox.vllm.inference_pb2_grpc import InferenceStub
from tests.frontend_svc.guarded import KeyRing, Start
from tests.frontend_svc.helpers import until
from tests.frontend_svc.scripted_cluster import Cluster

CORPUS = [
    "the quick brown fox jumps over the lazy dog",
    "größe naïve 東京 🚂🚃 café",
    "def main() -> None:\n    return 1",
]
CHAT_TEMPLATE = (
    "{{ bos_token }}{% if tools %}<|tools|>{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{% if m['role'] == 'assistant' and loop.first %}"
    "{{ raise_exception('the user speaks first') }}{% endif %}"
    "<|{{ m['role'] }}|>{{ m['content'] }}"
    "{% for c in m['tool_calls'] or [] %}<tool_call>{{ c['function'] | tojson }}</tool_call>{% endfor %}"
    "{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE of about 300 tokens, a chat template, special tokens."""
    directory = tmp_path_factory.mktemp("model")
    fast = FastTokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<eos>", "<bos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    fast.train_from_iterator(CORPUS, trainer)
    fast.add_tokens(["<tool call>"])
    fast.save(str(directory / "tokenizer.json"))
    config = {"eos_token": "<eos>", "bos_token": {"content": "<bos>"}, "chat_template": CHAT_TEMPLATE}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


@pytest.fixture(scope="session")
def tokenizer(model_directory: Path) -> Tokenizer:
    return load_tokenizer(model_directory)


@pytest.fixture
async def cluster(tokenizer: Tokenizer) -> AsyncIterator[Cluster]:
    cluster = Cluster(tokenizer.fingerprint, tokenizer.fast.get_vocab_size())
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.fixture
async def frontend(cluster: Cluster, model_directory: Path) -> AsyncIterator[Frontend]:
    settings = FrontendSettings(
        scheduler=f"127.0.0.1:{cluster.scheduler_port}",
        http="127.0.0.1:0",
        grpc="127.0.0.1:0",
        model=model_directory,
        queue_s=0.5,
        drain_s=0.2,
        max_request_bytes=100_000,
        max_backlog_tokens=64,
        vllm_faces=True,
    )
    frontend = Frontend(settings)
    await frontend.start()
    await until(lambda: frontend.is_ready)
    yield frontend
    await frontend.stop()


@pytest.fixture
async def http(frontend: Frontend) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}", timeout=5) as client:
        yield client


@pytest.fixture
async def sdk(frontend: Frontend) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"http://127.0.0.1:{frontend.http_port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=5) as client:
        yield client


@pytest.fixture
async def channel(frontend: Frontend) -> AsyncIterator[grpc.aio.Channel]:
    async with rpc.channel(f"127.0.0.1:{frontend.grpc_port}") as channel:
        yield channel


@pytest.fixture
def router(channel: grpc.aio.Channel) -> Any:
    return InferenceStub(channel)


@pytest.fixture
def smg(channel: grpc.aio.Channel) -> Any:
    return VllmEngineStub(channel)


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeyRing:
    """Keys of two tenants, with nothing special."""
    monkeypatch.setattr(access_control, "LOOK_EVERY_S", 0.02)
    ring = KeyRing(tmp_path / "keys.toml")
    ring.add("acme")
    ring.add("other", tenant="other")
    return ring


@pytest.fixture
async def start(cluster: Cluster, model_directory: Path, ring: KeyRing) -> AsyncIterator[Start]:
    """Starts the frontend of the test with these settings."""
    frontends: list[Frontend] = []

    async def start_one(**settings: Any) -> Frontend:
        given = {
            "scheduler": f"127.0.0.1:{cluster.scheduler_port}",
            "http": "127.0.0.1:0",
            "grpc": "127.0.0.1:0",
            "model": model_directory,
            "drain_s": 0.2,
            "max_request_bytes": 100_000,
            "key_file": ring.path,
            "vllm_faces": True,
        }
        frontend = Frontend(FrontendSettings.model_validate(given | settings))
        frontends.append(frontend)
        await frontend.start()
        await until(lambda: frontend.is_ready)
        return frontend

    yield start_one
    for frontend in frontends:
        await frontend.stop()


@pytest.fixture
async def guarded(start: Start) -> Frontend:
    return await start()
