"""The typed asynchronous client of a frontend.

    async with Client("127.0.0.1:7301") as client:
        async for delta in client.generate("def quicksort(", max_tokens=64, temperature=0):
            print(delta.text, end="", flush=True)

What goes wrong is raised as one of the classes of signalbox/errors.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, Unpack

import grpc

from signalbox.api_keys import key_from_environment
from signalbox.links.rpc_errors import error_of
from signalbox.links.tls.public import public_channel
from signalbox.protocol.generation import (
    Delta,
    Finished,
    FinishReason,
    Generation,
    Result,
    Sampling,
    TokenLogprobs,
)
from signalbox.v1 import frontend_pb2, frontend_pb2_grpc, generation_pb2

__all__ = [
    "DEFAULT_ADDRESS",
    "Client",
    "Delta",
    "FinishReason",
    "Finished",
    "Generation",
    "Model",
    "Pooling",
    "Result",
    "Sampling",
    "TokenLogprobs",
]

DEFAULT_ADDRESS = "127.0.0.1:7301"

_POOLING_MODES = {
    "mean": generation_pb2.POOLING_MODE_MEAN,
    "last": generation_pb2.POOLING_MODE_LAST,
    "cls": generation_pb2.POOLING_MODE_CLS,
}


class Pooling(TypedDict, total=False):
    """How one vector is made of an input. What is left out has the server's default."""

    mode: Literal["mean", "last", "cls"]
    """Default: the model's own, else last."""
    raw: bool
    """Do not scale the vector to length 1. Default: scale it."""
    dimensions: int
    """Keep the first so many. Default: all."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model that the server can run now."""

    id: str
    max_model_len: int
    """Longest prompt plus output, in tokens."""
    num_workers: int
    """Workers that run it now."""


class Client:
    """A connection to a frontend's gRPC address. Make it inside a running event loop. A frontend takes 64 calls of a
    connection at a time, further ones wait in it: who wants more makes several clients."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        api_key: str | None = None,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
    ) -> None:
        """`address` is host:port, or grpcs://host:port for a server that shows a certificate. `ca`: file with the
        authority that is believed, PEM; None: the one in SIGNALBOX_CA, else those that gRPC comes with. `cert`, `key`:
        files with what is shown to a server that asks for a certificate; None: SIGNALBOX_CLIENT_CERT and
        SIGNALBOX_CLIENT_KEY, else none. `api_key` None: the one in SIGNALBOX_API_KEY; empty: none is sent. Raises
        StartupError when a file cannot be read, or is given for an address without TLS."""
        self.address = address
        api_key = key_from_environment() if api_key is None else api_key
        self._metadata = (("authorization", f"Bearer {api_key}"),) if api_key else ()
        self._channel = public_channel(address, ca, cert, key)
        self._stub: Any = frontend_pb2_grpc.GenerationServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection; requests that still run are cancelled."""
        await self._channel.close(None)

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        model: str = "",
        request_id: str = "",
        priority: int = 0,
        cache_salt: str = "",
        timeout_s: float | None = None,
        n: int = 1,
        **sampling: Unpack[Sampling],
    ) -> Generation:
        """Starts a request; iterate the answer for its deltas, or await its `result()`.

        `prompt` is text or token ids. An empty `model` is the only one served. After `timeout_s` the
        request ends with DeadlineExceededError. `n` choices are sampled from the prompt.
        """
        request = frontend_pb2.GenerateRequest(
            model=model,
            sampling=generation_pb2.SamplingParams(**sampling),
            request_id=request_id,
            priority=priority,
            cache_salt=cache_salt,
            n=n,
        )
        if isinstance(prompt, str):
            request.text = prompt
        else:
            request.token_ids.ids.extend(prompt)
        call = self._stub.Generate(request, timeout=timeout_s, metadata=self._metadata)
        return Generation(call, self.address, n)

    async def embed(
        self,
        inputs: Sequence[str | Sequence[int]],
        *,
        model: str = "",
        priority: int = 0,
        cache_salt: str = "",
        timeout_s: float | None = None,
        **pooling: Unpack[Pooling],
    ) -> list[tuple[float, ...]]:
        """One vector per input, which is text or token ids."""
        request = frontend_pb2.EmbedRequest(
            model=model,
            inputs=[_embed_input(item) for item in inputs],
            pooling=_pooling_of(pooling),
            priority=priority,
            cache_salt=cache_salt,
        )
        response = await self._ask(self._stub.Embed, request, timeout_s)
        return [tuple(embedding.values) for embedding in response.embeddings]

    async def tokenize(
        self, text: str, *, model: str = "", raw: bool = False, timeout_s: float | None = 10
    ) -> list[int]:
        """Token ids of `text`; `raw`: without those that the tokenizer puts around it."""
        request = frontend_pb2.TokenizeRequest(model=model, text=text, raw=raw)
        return list((await self._ask(self._stub.Tokenize, request, timeout_s)).token_ids)

    async def detokenize(
        self, token_ids: Sequence[int], *, model: str = "", timeout_s: float | None = 10
    ) -> str:
        """The text of `token_ids`."""
        request = frontend_pb2.DetokenizeRequest(model=model, token_ids=token_ids)
        text: str = (await self._ask(self._stub.Detokenize, request, timeout_s)).text
        return text

    async def list_models(self, *, timeout_s: float | None = 10) -> list[Model]:
        """The models that the server can run now."""
        response = await self._ask(self._stub.ListModels, frontend_pb2.ListModelsRequest(), timeout_s)
        return [Model(item.id, item.max_model_len, item.num_workers) for item in response.models]

    async def _ask(self, method: Any, request: Any, timeout_s: float | None) -> Any:
        """The response of a unary call."""
        try:
            return await method(request, timeout=timeout_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise error_of(error, self.address) from None


def _embed_input(prompt: str | Sequence[int]) -> frontend_pb2.EmbedInput:
    if isinstance(prompt, str):
        return frontend_pb2.EmbedInput(text=prompt)
    return frontend_pb2.EmbedInput(token_ids=frontend_pb2.TokenIds(ids=prompt))


def _pooling_of(pooling: Pooling) -> generation_pb2.PoolingParams:
    mode = _POOLING_MODES[pooling["mode"]] if "mode" in pooling else generation_pb2.POOLING_MODE_UNSPECIFIED
    return generation_pb2.PoolingParams(
        mode=mode, raw=pooling.get("raw", False), dimensions=pooling.get("dimensions", 0)
    )
