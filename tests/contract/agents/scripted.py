"""A frontend with Qwen3's language before the scripted cluster: what the model says is what a test writes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from frontend_svc.config import FrontendSettings
from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer, load_tokenizer
from signalbox.v1 import generation_pb2
from tests.contract.agents.model import TURN_END
from tests.frontend_svc.helpers import STOP, until
from tests.frontend_svc.scripted_cluster import Cluster

MODEL = "toy"
START_TIMEOUT_S = 60
MAX_MODEL_LEN = 65_536
"""Tokens of prompt and output."""
Script = Callable[[str], str]
"""From the text of a prompt to that of the output, without the end of the turn."""


def write_call(name: str, **arguments: Any) -> str:
    """A call as Qwen3 writes it."""
    written = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{written}\n</tool_call>"


def think(thought: str) -> str:
    """Reasoning as Qwen3 writes it."""
    return f"<think>\n{thought}\n</think>\n\n"


class ScriptedModel:
    """The frontend's address, and all prompts that came."""

    def __init__(self, url: str, tokenizer: Tokenizer, cluster: Cluster) -> None:
        self.url = url
        self.prompts: list[str] = []
        self._tokenizer = tokenizer
        self._cluster = cluster

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._tokenizer.fast.encode(text, add_special_tokens=False).ids)

    def serve(self, script: Script) -> None:
        """Answers every request by the script."""
        fast = self._tokenizer.fast

        def output(payload: generation_pb2.RequestPayload) -> list[int]:
            ids = [
                int.from_bytes(payload.token_ids[at : at + 4], "little")
                for at in range(0, len(payload.token_ids), 4)
            ]
            self.prompts.append(fast.decode(ids, skip_special_tokens=False))
            return fast.encode(script(self.prompts[-1]) + TURN_END, add_special_tokens=False).ids

        self._cluster.serve(output, STOP)


@asynccontextmanager
async def scripted_model(directory: Path) -> AsyncIterator[ScriptedModel]:
    """Runs until it is left."""
    tokenizer = load_tokenizer(directory)
    cluster = Cluster(tokenizer.fingerprint, tokenizer.fast.get_vocab_size())
    cluster.model.max_model_len = cluster.model.max_request_tokens = MAX_MODEL_LEN
    await cluster.start()
    frontend = Frontend(
        FrontendSettings(
            scheduler=f"127.0.0.1:{cluster.scheduler_port}",
            http="127.0.0.1:0",
            grpc="127.0.0.1:0",
            model=directory,
            drain_s=0.2,
        )
    )
    await frontend.start()
    try:
        await until(lambda: frontend.is_ready, START_TIMEOUT_S)
        yield ScriptedModel(f"http://127.0.0.1:{frontend.http_port}", tokenizer, cluster)
    finally:
        await frontend.stop()
        await cluster.stop()
